//! What every picture operation needs before the loops of `mien_pixels` run: that sizes agree,
//! regions lie inside, numbers are finite, and what is allocated is bounded.

use std::sync::{Mutex, PoisonError};

use mien_base::limits::{FACES, PICTURE_PIXELS, PICTURE_SIDE};
use mien_pixels::geometry::{Affine2, Roi, Size};
use mien_pixels::tensor::{Packing, Unpacking};
use mien_pixels::view::{Grey, Image, Rgb, View, ViewMut};
use mien_pixels::warp::{Border, affine, affine_area};
use mien_pixels::{cover, mesh, raster, resize, tensor};

use crate::backend::{Cover, Layout, MeshWarp, Normalise, Shape};
use crate::tensor::{Tensor, all_finite, values};
use crate::{Error, Result};

/// Most buffers that are kept for the next operation.
const KEPT: usize = 4;
/// Largest part of a polyphase split.
const PHASES: usize = 16;

/// Buffers between operations, so that a stream of pictures does not allocate again and again.
#[derive(Debug, Default)]
pub(super) struct Scratch(Mutex<Vec<Vec<u8>>>);

impl Scratch {
    /// Lends an image of a size; what is in it is left from before.
    fn lend<const C: usize, R>(&self, size: Size, work: impl FnOnce(&mut Image<C>) -> R) -> R {
        let mut image = self.take(size);
        let result = work(&mut image);
        self.keep(image);
        result
    }

    /// An image of a size; what is in it is left from before.
    fn take<const C: usize>(&self, size: Size) -> Image<C> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = size.pixels() as usize * C;
        // The smallest that is large enough, so that large ones stay for large images.
        let fits = |(_, buffer): &(usize, &Vec<u8>)| buffer.capacity() >= bytes;
        let best = kept.iter().enumerate().filter(fits).min_by_key(|(_, b)| b.capacity());
        let at = best.map(|(at, _)| at).or_else(|| kept.len().checked_sub(1));
        let mut buffer = at.map(|at| kept.swap_remove(at)).unwrap_or_default();
        drop(kept);
        buffer.resize(bytes, 0);
        Image::from_vec(size, buffer).expect("resized to fit")
    }

    /// Takes an image back.
    pub(super) fn keep<const C: usize>(&self, image: Image<C>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(image.into_vec());
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(Vec::capacity).sum()
    }
}

/// What covers work in, one for each that runs at a time.
#[derive(Debug, Default)]
pub(super) struct Covers(Mutex<Vec<cover::Work>>);

fn refuse<T>(operation: &str, why: &str) -> Result<T> {
    Err(Error::Picture { what: format!("`{operation}` got {why}") })
}

/// Refuses two sizes that differ.
pub(super) fn same(operation: &str, a: Size, b: Size) -> Result<()> {
    if a == b {
        return Ok(());
    }
    let (aw, ah, bw, bh) = (a.width, a.height, b.width, b.height);
    refuse(operation, &format!("{aw}x{ah} and {bw}x{bh}"))
}

fn made(operation: &str, size: Size) -> Result<()> {
    let Size { width, height } = size;
    if size.pixels() == 0
        || size.pixels() > PICTURE_PIXELS
        || width > PICTURE_SIDE
        || height > PICTURE_SIDE
    {
        return refuse(operation, &format!("the size {width}x{height}"));
    }
    Ok(())
}

fn finite(operation: &str, map: &Affine2) -> Result<()> {
    let Affine2 { a, b, c, d, e, f } = *map;
    if [a, b, c, d, e, f].iter().all(|v| v.is_finite()) {
        return Ok(());
    }
    refuse(operation, "a map that is not finite")
}

fn inside(operation: &str, size: Size, roi: Roi) -> Result<()> {
    let ends = |at: u32, len: u32, max: u32| at.checked_add(len).is_some_and(|end| end <= max);
    if ends(roi.x, roi.width, size.width) && ends(roi.y, roi.height, size.height) {
        return Ok(());
    }
    let Size { width, height } = size;
    refuse(operation, &format!("the region {roi:?} of a picture of {width}x{height}"))
}

/// A region of a picture, when it lies inside.
pub(super) fn part<'a>(operation: &str, picture: &'a Rgb, roi: Roi) -> Result<View<'a, 3>> {
    inside(operation, picture.size(), roi)?;
    Ok(picture.view().crop(roi))
}

/// A region of a picture for writing, when it lies inside.
pub(super) fn part_mut<'a>(
    operation: &str,
    picture: &'a mut Rgb,
    roi: Roi,
) -> Result<ViewMut<'a, 3>> {
    inside(operation, picture.size(), roi)?;
    Ok(picture.view_mut().crop(roi))
}

fn packing(operation: &str, normalise: &Normalise) -> Result<Packing> {
    let Normalise { mean, scale, bgr, layout } = *normalise;
    if !mean.iter().chain(&scale).all(|v| v.is_finite()) {
        return refuse(operation, "a normalisation that is not finite");
    }
    let layout = match layout {
        Layout::Nchw => tensor::Layout::Planar,
        Layout::Nhwc => tensor::Layout::Interleaved,
    };
    Ok(Packing { mean, scale, bgr, layout })
}

/// A tensor of zeros for pictures of a size.
fn batch(operation: &str, count: usize, size: Size, layout: Layout) -> Result<Tensor> {
    made(operation, size)?;
    let (width, height) = (size.width as usize, size.height as usize);
    let shape = match layout {
        Layout::Nchw => [count, 3, height, width],
        Layout::Nhwc => [count, height, width, 3],
    };
    if count == 0 || count > FACES || values(&shape).is_none() {
        return refuse(operation, &format!("a batch of shape {shape:?}"));
    }
    Ok(Tensor::filled(&shape, 0.0))
}

pub(super) fn letterbox(
    scratch: &Scratch,
    picture: &Rgb,
    canvas: Size,
    fit: Size,
    normalise: &Normalise,
) -> Result<Tensor> {
    const NAME: &str = "letterbox";
    let packing = packing(NAME, normalise)?;
    made(NAME, picture.size())?;
    made(NAME, fit)?;
    if fit.width > canvas.width || fit.height > canvas.height {
        return refuse(NAME, "a fit that is larger than its canvas");
    }
    let mut out = batch(NAME, 1, canvas, normalise.layout)?;
    if picture.size() == fit {
        tensor::pack(picture.view(), canvas, &packing, &mut out.data);
    } else {
        scratch.lend(fit, |scaled| {
            resize::resize(picture.view(), &mut scaled.view_mut());
            tensor::pack(scaled.view(), canvas, &packing, &mut out.data);
        });
    }
    Ok(out)
}

pub(super) fn crop_batch(
    scratch: &Scratch,
    picture: &Rgb,
    maps: &[Affine2],
    size: Size,
    normalise: &Normalise,
) -> Result<Tensor> {
    const NAME: &str = "crop_batch";
    let packing = packing(NAME, normalise)?;
    made(NAME, picture.size())?;
    maps.iter().try_for_each(|map| finite(NAME, map))?;
    let mut out = batch(NAME, maps.len(), size, normalise.layout)?;
    let each = out.data.len() / maps.len();
    scratch.lend(size, |crop| {
        for (map, values) in maps.iter().zip(out.data.chunks_exact_mut(each)) {
            affine_area(picture.view(), map, &mut crop.view_mut(), Border::Replicate);
            tensor::pack(crop.view(), size, &packing, values);
        }
    });
    Ok(out)
}

pub(super) fn crop(picture: &Rgb, map: &Affine2, size: Size) -> Result<Rgb> {
    const NAME: &str = "crop";
    made(NAME, picture.size())?;
    made(NAME, size)?;
    finite(NAME, map)?;
    let mut crop = Rgb::filled(size, [0; 3]);
    affine_area(picture.view(), map, &mut crop.view_mut(), Border::Replicate);
    Ok(crop)
}

pub(super) fn warp_back(crop: &Rgb, map: &Affine2, roi: Roi) -> Result<Rgb> {
    const NAME: &str = "warp_back";
    made(NAME, crop.size())?;
    made(NAME, roi.size())?;
    finite(NAME, map)?;
    let map = Affine2::translate(f64::from(roi.x), f64::from(roi.y)).then(map);
    let mut layer = Rgb::filled(roi.size(), [0; 3]);
    affine(crop.view(), &map, &mut layer.view_mut(), Border::Replicate);
    Ok(layer)
}

pub(super) fn to_picture(picture: &Tensor, scale: f32, offset: f32) -> Result<Rgb> {
    const NAME: &str = "to_picture";
    let &[1, 3, height, width] = &picture.shape[..] else {
        return refuse(NAME, &format!("the shape {:?}", picture.shape));
    };
    let side = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let size = Size::new(side(width), side(height));
    made(NAME, size)?;
    if !picture.is_whole() || !all_finite(&picture.data) {
        return refuse(NAME, "values that are not finite or not as many as its shape says");
    }
    if !(scale.is_finite() && offset.is_finite()) {
        return refuse(NAME, "a scale that is not finite");
    }
    let mut out = Rgb::filled(size, [0; 3]);
    let unpacking = Unpacking {
        scale: [scale; 3],
        offset: [offset; 3],
        bgr: false,
        layout: tensor::Layout::Planar,
    };
    tensor::unpack(&picture.data, &unpacking, &mut out.view_mut());
    Ok(out)
}

fn phase(operation: &str, tensor: &Tensor, k: usize) -> Result<[usize; 4]> {
    match <[usize; 4]>::try_from(&tensor.shape[..]) {
        Ok(shape) if tensor.is_whole() && (1..=PHASES).contains(&k) && !shape.contains(&0) => {
            Ok(shape)
        }
        _ => refuse(operation, &format!("the shape {:?} for {k} phases", tensor.shape)),
    }
}

pub(super) fn polyphase_split(whole: &Tensor, k: usize) -> Result<Tensor> {
    const NAME: &str = "polyphase_split";
    let [count, channels, height, width] = phase(NAME, whole, k)?;
    if count != 1 || height % k != 0 || width % k != 0 {
        return refuse(NAME, &format!("the shape {:?} for {k} phases", whole.shape));
    }
    let (height, width) = (height / k, width / k);
    let mut parts = Tensor::filled(&[k * k, channels, height, width], 0.0);
    let size = Size::new(width as u32, height as u32);
    tensor::polyphase_split(&whole.data, channels, size, k, &mut parts.data);
    Ok(parts)
}

pub(super) fn polyphase_join(parts: &Tensor, k: usize) -> Result<Tensor> {
    const NAME: &str = "polyphase_join";
    let [count, channels, height, width] = phase(NAME, parts, k)?;
    if count != k * k {
        return refuse(NAME, &format!("the shape {:?} for {k} phases", parts.shape));
    }
    let mut whole = Tensor::filled(&[1, channels, height * k, width * k], 0.0);
    let size = Size::new(width as u32, height as u32);
    tensor::polyphase_join(&parts.data, channels, size, k, &mut whole.data);
    Ok(whole)
}

pub(super) fn warp_mesh(source: &Rgb, warp: &MeshWarp<'_>) -> Result<(Rgb, Grey)> {
    const NAME: &str = "warp_mesh";
    made(NAME, source.size())?;
    made(NAME, warp.roi.size())?;
    if warp.from.len() != warp.to.len() {
        return refuse(NAME, "two meshes of different length");
    }
    let (mut layer, mut coverage) = (Rgb::filled(Size::new(0, 0), [0; 3]), empty());
    let MeshWarp { from, to, triangles, roi } = *warp;
    mesh::warp(source.view(), from, to, triangles, roi, &mut layer, &mut coverage);
    Ok((layer, coverage))
}

fn empty() -> Grey {
    Grey::filled(Size::new(0, 0), [0])
}

pub(super) fn mask(scratch: &Scratch, shapes: &[Shape<&Tensor>], roi: Roi) -> Result<Grey> {
    const NAME: &str = "mask";
    made(NAME, roi.size())?;
    let mut alpha: Grey = scratch.take(roi.size());
    alpha.bytes_all_mut().fill(255);
    for shape in shapes {
        match shape {
            Shape::Polygon { points, feather } => {
                raster::polygon(points, feather.width, roi, &mut alpha);
            }
            Shape::Ellipse { to_picture, feather } => {
                raster::ellipse(to_picture, feather.width, roi, &mut alpha);
            }
            Shape::CropBox { to_picture, side, padding, blur } => {
                raster::crop_box(to_picture, *side, *padding, *blur, roi, &mut alpha);
            }
            Shape::Vertices { points, triangles, values } => {
                let mut over = empty();
                mesh::values(points, triangles, values, roi, &mut over);
                raster::meet(&mut alpha, &over);
            }
            Shape::Map { tensor, to_picture } => {
                let (height, width) = match tensor.shape[..] {
                    [.., height, width] if height * width == tensor.data.len() => (height, width),
                    _ => return refuse(NAME, &format!("a map of shape {:?}", tensor.shape)),
                };
                if !all_finite(&tensor.data) {
                    return refuse(NAME, "a map of values that are not finite");
                }
                raster::map(&tensor.data, width, height, to_picture, roi, &mut alpha);
            }
        }
    }
    Ok(alpha)
}

pub(super) fn cover(
    covers: &Covers,
    picture: &mut Rgb,
    roi: Roi,
    alpha: &Grey,
    cover: &Cover,
) -> Result<()> {
    const NAME: &str = "cover";
    same(NAME, roi.size(), alpha.size())?;
    let mut part = part_mut(NAME, picture, roi)?;
    let kept = || covers.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut work = kept().pop().unwrap_or_default();
    match *cover {
        Cover::Solid { colour } => cover::solid(&mut part, alpha, colour),
        Cover::Mosaic { cell, noise, seed } if cell > 0 && noise >= 0.0 && noise.is_finite() => {
            cover::mosaic(&mut part, alpha, (cell, noise), seed, &mut work);
        }
        Cover::Blur { sigma } if sigma > 0.0 && sigma.is_finite() => {
            cover::blur(&mut part, alpha, sigma, &mut work);
        }
        _ => return refuse(NAME, &format!("{cover:?}")),
    }
    kept().push(work);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Normalise =
        Normalise { mean: [0.0; 3], scale: [1.0; 3], bgr: false, layout: Layout::Nchw };

    #[test]
    fn a_stream_of_pictures_keeps_one_buffer() {
        let scratch = Scratch::default();
        let picture = Rgb::filled(Size::new(64, 48), [1, 2, 3]);
        let size = Size::new(32, 24);
        for _ in 0..10 {
            letterbox(&scratch, &picture, size, size, &PLAIN).unwrap();
            crop_batch(&scratch, &picture, &[Affine2::IDENTITY; 3], size, &PLAIN).unwrap();
        }
        assert_eq!(scratch.capacity(), 32 * 24 * 3);
    }
}
