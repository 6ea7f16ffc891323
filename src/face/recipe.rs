//! Checks what was asked for, all faults at once.
