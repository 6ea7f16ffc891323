//! Who is who: cosine against the enrolled.
