//! Cells of a picture: where boxes are sorted in, and which of them a place can touch.
//!
//! ```text
//!   level 0: 1 cell, boxes over half the picture's side    level 3: 8 x 8, up to an eighth
//! ```
//! A box lies in the cell of its upper left corner, on the finest level whose cells are as large as
//! the box: it reaches into the next cell at most.

use crate::audit::{Place, WHOLE};

/// The finest level.
const FINEST: u32 = 3;

/// Side of a cell.
const fn side(level: u32) -> u16 {
    WHOLE >> level
}

/// Number of a cell's column or row; what lies on the far edge belongs to the last.
fn step(at: u16, level: u32) -> u16 {
    (at / side(level)).min((1 << level) - 1)
}

const fn number(level: u32, column: u16, row: u16) -> u16 {
    (level as u16) << 8 | row << 4 | column
}

/// The cell of a box.
pub(super) fn cell(place: Place) -> u16 {
    let [x0, y0, x1, y1] = place;
    let large = x1.saturating_sub(x0).max(y1.saturating_sub(y0));
    let level = (0..=FINEST).rev().find(|level| side(*level) >= large).unwrap_or(0);
    number(level, step(x0, level), step(y0, level))
}

/// Every cell with boxes that can touch a place.
pub(super) fn touching(place: Place) -> Vec<u16> {
    let [x0, y0, x1, y1] = place;
    let mut cells = Vec::new();
    for level in 0..=FINEST {
        let before = |at: u16| step(at.saturating_sub(side(level)), level);
        for row in before(y0)..=step(y1, level) {
            cells.extend((before(x0)..=step(x1, level)).map(|column| number(level, column, row)));
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_place() -> impl Strategy<Value = Place> {
        (0..=WHOLE, 0..=WHOLE, 0..=WHOLE, 0..=WHOLE)
            .prop_map(|(a, b, c, d)| [a.min(c), b.min(d), a.max(c), b.max(d)])
    }

    #[test]
    fn a_small_box_is_looked_for_in_few_cells() {
        assert_eq!(cell([0, 0, 10_000, 10_000]), 0);
        assert_eq!(cell([0, 0, 1250, 1250]) >> 8, 3);
        assert_eq!(cell([0, 0, 1251, 0]) >> 8, 2);
        assert!(touching([5000, 5000, 6000, 6000]).len() <= 14);
        assert_eq!(touching([0, 0, 10_000, 10_000]).len(), 1 + 4 + 16 + 64);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_box_that_touches_a_place_is_in_one_of_its_cells(a in any_place(), b in any_place()) {
            let touch = a[0] <= b[2] && a[2] >= b[0] && a[1] <= b[3] && a[3] >= b[1];
            prop_assert!(!touch || touching(b).contains(&cell(a)), "{a:?} {b:?}");
        }
    }
}
