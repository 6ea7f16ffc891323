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
        50, 36, 205, 187, 123, 142, 203, 206, 207, 147, 197, 195, 5, 4, 280, 266, 425, 411, 352,
        371, 423, 426, 427, 376,
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
    let mut zone = chosen(|i, x, y| {
        let beside = !(0.2..=0.8).contains(&x) && y < height(234);
        (y < brow(x) - 0.005 || beside) && !in_any(i, &brows)
    });
    // A fringe may reach down to the upper edges of the brows.
    for i in t::BROW_LEFT[..5].iter().chain(&t::BROW_RIGHT[..5]) {
        zone[usize::from(*i)] = 0.2;
    }
    zone
});

/// All that rims and glasses may lie on.
pub(crate) static SOCKETS: LazyLock<Values> = LazyLock::new(|| {
    let (top, bottom) = (height(105) - 0.03, height(50));
    chosen(|_, x, y| y > top && y < bottom && (0.12..=0.88).contains(&x))
});

/// The brows, which a rim hides.
pub(crate) static BROWS: LazyLock<Values> =
    LazyLock::new(|| chosen(|i, _, _| in_any(i, &[&t::BROW_LEFT, &t::BROW_RIGHT])));

/// Lids and lashes, and the eyes between them.
pub(crate) static LIDS: LazyLock<Values> =
    LazyLock::new(|| chosen(|i, _, _| in_any(i, &[&t::EYE_LEFT, &t::EYE_RIGHT])));

/// Where a pair of spectacles shows on nearly every face: the bridge of the nose,
pub(crate) const BRIDGE: [usize; 7] = [6, 168, 193, 417, 122, 351, 8];
/// and the arcs below the eyes.
pub(crate) const ARCS: [usize; 10] = [118, 119, 120, 117, 101, 347, 348, 349, 346, 330];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_where_their_names_say() {
        assert_eq!(FOREHEAD[151], 1.0);
        assert_eq!(FOREHEAD[10], 1.0);
        for eye_or_mouth in [159, 145, 13, 14, 52, 282, 1, 152, 50] {
            assert_eq!(FOREHEAD[eye_or_mouth], 0.0, "{eye_or_mouth}");
        }
        for lid in t::EYE_LEFT.iter().chain(&t::EYE_RIGHT) {
            assert_eq!(FOREHEAD[usize::from(*lid)], 0.0, "{lid}");
            assert_eq!(SOCKETS[usize::from(*lid)], 1.0, "{lid}");
        }
    }

    #[test]
    fn zones_are_symmetric() {
        for zone in [&*SAMPLE, &*FOREHEAD, &*SOCKETS, &*BROWS, &*LIDS] {
            for (i, m) in t::MIRROR.iter().enumerate() {
                assert_eq!(zone[i], zone[usize::from(*m)], "{i} and {m}");
            }
        }
    }
}
