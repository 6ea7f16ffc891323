//! Transposed convolutions whose windows do not meet: each place in the window is a pointwise
//! convolution that writes every so many rows and columns.

use super::Lane;
use super::dense::{Dense, Image, Residual, Rows, Shared, With, bands, run_rows};

/// Runs one for one image of a batch; `places` are row by row of `window` = (rows, columns).
///
/// # Panics
/// When a slice is shorter than its shape says.
pub(crate) fn convolve(
    with: &mut With<'_>,
    places: &[Dense],
    window: (usize, usize),
    image: &Image<'_>,
    number: usize,
    y: &mut [Lane],
    residual: Residual<'_>,
) {
    image.check();
    assert!(places.len() == window.0 * window.1 && image.lanes == 8);
    let blocks = places[0].filter.bias.len();
    let values = image.channels();
    for place in places {
        assert_eq!(place.filter.bias.len(), blocks, "weights of another shape");
        assert_eq!(place.filter.weights.len(), blocks * values, "weights of another shape");
        assert_eq!(place.window, super::dense::Window::POINT);
    }
    let (h, w) = (image.size.0 * window.0, image.size.1 * window.1);
    let y = &mut y[number * blocks * h * w..][..blocks * h * w];
    let base = Shared(y.as_mut_ptr().cast());
    let (from, residual_blocks) = residual.of(number, base.0, h * w);
    let from = Shared(from.cast_mut());
    let rows = image.size.0;
    let bands = bands(with.team.threads(), rows, values * blocks * h * w);
    let each = rows.div_ceil(bands);
    let level = with.level;
    with.team.run(bands, &|band| {
        let (first, last) = (band * each, ((band + 1) * each).min(rows));
        if first >= last {
            return;
        }
        for (i, place) in places.iter().enumerate() {
            let offset = ((first * window.0 + i / window.1) * w + i % window.1) * 8;
            let out = Rows {
                to: base.at(offset),
                residual: if from.0.is_null() { from.0 } else { from.at(offset) },
                residual_blocks,
                row: window.0 * w * 8,
                pixel: window.1 * 8,
                plane: h * w * 8,
            };
            // SAFETY: the image was checked; the places of all bands together are the output, each
            // once; a pointwise convolution needs no scratch.
            unsafe { run_rows(level, place, image, (first, last), &out, std::ptr::null_mut()) };
        }
    });
}
