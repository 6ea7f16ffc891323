//! Running sums: what a box blur is made of.

each_level! {
    /// Adds a row to the column sums and takes another away.
    pub(crate) fn slide(columns: &mut [u32], new: &[u8], old: &[u8]) {
        for ((c, new), old) in columns.iter_mut().zip(new).zip(old) {
            *c = c.wrapping_add(u32::from(*new)).wrapping_sub(u32::from(*old));
        }
    }
}

each_level! {
    /// Sums of all pixels before each one, with `radius` repeated pixels on both sides: `before`
    /// gets width + 2 radius + 1 pixels, and four values more than it needs. They may wrap.
    pub(crate) fn prefix<const C: usize>(columns: &[u32], radius: usize, before: &mut [u32]) {
        let width = columns.len() / C;
        let edge = |x: usize| -> [u32; 4] {
            std::array::from_fn(|c| if c < C { columns[x * C + c] } else { 0 })
        };
        let mut sum = [0_u32; 4];
        let mut at = 0;
        let mut put = |pixel: &[u32; 4]| {
            before[at..at + 4].copy_from_slice(&sum);
            for c in 0..4 {
                sum[c] = sum[c].wrapping_add(pixel[c]);
            }
            at += C;
        };
        let first = edge(0);
        (0..radius).for_each(|_| put(&first));
        // A pixel reads over its end where four values are left.
        let inner = columns.len().saturating_sub(4) / C;
        for x in 0..inner {
            put(columns[x * C..x * C + 4].first_chunk().expect("4 values"));
        }
        (inner..width).for_each(|x| put(&edge(x)));
        let last = edge(width - 1);
        (0..radius + 1).for_each(|_| put(&last));
    }
}

each_level! {
    /// (after - before) * scale of each value; both differences are below 2^31.
    pub(crate) fn scaled(before: &[u32], after: &[u32], scale: f32, out: &mut [f32]) {
        for ((o, b), a) in out.iter_mut().zip(before).zip(after) {
            *o = a.wrapping_sub(*b) as i32 as f32 * scale;
        }
    }
}
