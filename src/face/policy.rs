//! Who is known, who agreed, whose face may be used.
