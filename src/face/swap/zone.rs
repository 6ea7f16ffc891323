//! Zones of a face, as a value per point of the mesh.

use std::sync::LazyLock;

use super::topology as t;

/// A value 0..=1 for each of the 468 points.
pub(crate) type Values = Vec<f32>;

/// Points of the layout that a test takes, x and y in 0..=1 of it.
fn chosen(test: impl Fn(usize, f32, f32) -> bool) -> Values {
    let value = |(i, p): (usize, &[u16; 2])| {
        let (x, y) = (f32::from(p[0]) / 10_000.0, f32::from(p[1]) / 10_000.0);
        f32::from(u8::from(test(i, x, y)))
    };
    t::LAYOUT.iter().enumerate().map(value).collect()
}

fn height(i: u16) -> f32 {
    f32::from(t::LAYOUT[usize::from(i)][1]) / 10_000.0
}

fn in_any(i: usize, rings: &[&[u16]]) -> bool {
    rings.iter().any(|r| r.iter().any(|v| usize::from(*v) == i))
}

/// Cheeks, nose and chin's sides: skin, and nearly always seen.
pub(crate) static SAMPLE: LazyLock<Values> = LazyLock::new(|| {
    let cheek = [
        50, 101, 36, 205, 187, 123, 117, 118, 119, 100, 142, 203, 206, 207, 147, 116, 6, 197, 195,
        5, 4, 280, 330, 266, 425, 411, 352, 346, 347, 348, 329, 371, 423, 426, 427, 376, 345,
    ];
    chosen(|i, _, _| cheek.contains(&i))
});

/// Above the brows, and the temples beside them: where a fringe hangs.
pub(crate) static FOREHEAD: LazyLock<Values> = LazyLock::new(|| {
    let brow = |x: f32| {
        // The upper edges of the brows, read across.
        let side = if x < 0.5 { &t::BROW_LEFT } else { &t::BROW_RIGHT };
        side[..5].iter().map(|i| height(*i)).fold(f32::MAX, f32::min)
    };
    let brows: [&[u16]; 2] = [&t::BROW_LEFT, &t::BROW_RIGHT];
    chosen(|i, x, y| {
        let beside = !(0.2..=0.8).contains(&x) && y < height(234);
        (y < brow(x) - 0.005 || beside) && !in_any(i, &brows)
    })
});

/// Around the eyes, where spectacles sit, without brows, lids and lashes.
pub(crate) static SPECTACLES: LazyLock<Values> = LazyLock::new(|| {
    let ring = [
        // Below the eyes, twice.
        230, 229, 228, 231, 232, 233, 226, 31, 111, 117, 118, 119, 120, 121, 128, 245, 188, 450,
        449, 448, 451, 452, 453, 446, 261, 340, 346, 347, 348, 349, 350, 357, 465, 412, //
        // The bridge of the nose.
        6, 168, 122, 351, 193, 417, 197, 196, 419, 174, 399, //
        // Towards the temples.
        35, 143, 265, 372, 124, 353, 156, 383, 116, 345, 34, 264, 227, 447, 139, 368,
    ];
    chosen(|i, _, _| ring.contains(&i))
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_where_their_names_say() {
        assert_eq!(FOREHEAD[151], 1.0);
        assert_eq!(FOREHEAD[10], 1.0);
        for eye_or_mouth in [159, 145, 13, 14, 105, 334, 1, 152, 50] {
            assert_eq!(FOREHEAD[eye_or_mouth], 0.0, "{eye_or_mouth}");
        }
        for lid in t::EYE_LEFT.iter().chain(&t::EYE_RIGHT).chain(&t::BROW_LEFT) {
            assert_eq!(SPECTACLES[usize::from(*lid)], 0.0, "{lid}");
        }
    }

    #[test]
    fn zones_are_symmetric() {
        for zone in [&*SAMPLE, &*FOREHEAD, &*SPECTACLES] {
            for (i, m) in t::MIRROR.iter().enumerate() {
                assert_eq!(zone[i], zone[usize::from(*m)], "{i} and {m}");
            }
        }
    }
}
