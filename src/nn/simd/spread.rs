//! Transposed convolutions whose windows do not meet: each place in the window is a pointwise
//! convolution that writes every so many rows and columns.

use super::Lane;
use super::bands::{Residual, Target, With, deal};
use super::dense::{Dense, Image, run_rows};

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
    let target = Target::new(y, number, blocks, (h, w), residual);
    let level = with.level;
    deal(with, image.size.0, values * blocks * h * w, |_| 0, &|band, _| {
        for (i, place) in places.iter().enumerate() {
            let first = (band.0 * window.0 + i / window.1, i % window.1);
            let out = target.every(first, window);
            // SAFETY: the image was checked; the places of all bands together are the output, each
            // once; a pointwise convolution needs no scratch.
            unsafe { run_rows(level, place, image, band, &out, std::ptr::null_mut()) };
        }
    });
}
