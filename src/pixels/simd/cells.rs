//! Sums down the columns of a block: what thumbnails and change maps are made of.

/// A row, and the row of another picture at the same place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a>(pub(crate) &'a [u8], pub(crate) &'a [u8]);

each_level! {
    /// Adds a row to the column sums.
    pub(crate) fn add(row: Row<'_>, sums: &mut [u16]) {
        for (sum, a) in sums.iter_mut().zip(row.0) {
            *sum = sum.wrapping_add(u16::from(*a));
        }
    }
}

each_level! {
    /// Adds how far two rows are apart.
    pub(crate) fn add_apart(row: Row<'_>, sums: &mut [u16]) {
        for ((sum, a), b) in sums.iter_mut().zip(row.0).zip(row.1) {
            *sum = sum.wrapping_add(u16::from(a.abs_diff(*b)));
        }
    }
}
