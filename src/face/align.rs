//! Landmarks to a canonical crop; implausible transforms are refused.
