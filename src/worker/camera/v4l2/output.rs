//! A V4L2 output device: marked frames are written to it, one `write` each.

use std::os::fd::OwnedFd;

use mien_pixels::i420::I420;
use rustix::io::Errno;

use super::{Driver, Failed, Format, Io, NV12, Node, YUYV};
use crate::camera::Fault;

/// A device that takes frames.
#[derive(Debug)]
pub struct Sink {
    fd: OwnedFd,
    format: Format,
    bytes: Vec<u8>,
}

/// Agrees with the driver of a device on the format of frames that it is to take.
fn agree(driver: &mut dyn Driver, (width, height): (u32, u32)) -> Result<Format, Fault> {
    let card = driver.card()?;
    let kind = card.takes().ok_or_else(|| Fault::Unusable {
        detail: format!("`{}` takes no frames that are written to it", card.card),
    })?;
    for fourcc in [YUYV, NV12] {
        let wanted = Format::wanted(kind, fourcc, width, height);
        let set: Io<Format> = driver.set_format(&wanted);
        match set {
            Ok(set) if (set.fourcc, set.width, set.height) == (fourcc, width, height) => {
                return Ok(set);
            }
            Ok(_) | Err(Failed { errno: Errno::INVAL, .. }) => {}
            Err(failed) => return Err(failed.into()),
        }
    }
    let detail = format!("`{}` takes neither YUYV nor NV12 of {width}x{height}", card.card);
    Err(Fault::Unusable { detail })
}

impl Sink {
    /// Takes a node and agrees on its format. Only this needs more than `write`.
    ///
    /// # Errors
    /// `Fault`.
    pub fn open(fd: OwnedFd, size: (u32, u32)) -> Result<Self, Fault> {
        let mut node = Node::new(fd)?;
        let format = agree(&mut node, size)?;
        let (stride, bytes) = format.planes[0];
        let rows = format.height as usize;
        let (least_stride, rows) = match format.fourcc {
            NV12 => (format.width as usize, rows + rows.div_ceil(2)),
            _ => (4 * format.width.div_ceil(2) as usize, rows),
        };
        let mut format = format;
        format.planes[0].0 = (stride as usize).max(least_stride) as u32;
        let least = rows * format.planes[0].0 as usize;
        let bytes = vec![0; least.max(bytes as usize)];
        Ok(Self { fd: node.into_fd(), format, bytes })
    }

    /// Writes a frame; false when the device has no room for it now.
    ///
    /// # Errors
    /// The errno of `write`.
    pub fn write(&mut self, frame: &I420) -> Result<bool, Errno> {
        let stride = self.format.planes[0].0 as usize;
        match self.format.fourcc {
            NV12 => frame.write_nv12(&mut self.bytes, stride),
            _ => frame.write_yuyv(&mut self.bytes, stride),
        }
        loop {
            match rustix::io::write(&self.fd, &self.bytes) {
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::v4l2::fake::{Fake, webcam};
    use crate::camera::v4l2::raw;

    #[test]
    fn a_device_that_takes_no_frames_is_refused_by_name() {
        let mut camera = Fake::new(webcam());
        let fault = agree(&mut camera, (640, 480)).unwrap_err();
        assert!(fault.to_string().contains("`Fake webcam` takes no frames"));
        camera.script.caps = raw::OUTPUT | raw::READ_WRITE;
        let format = agree(&mut camera, (640, 480)).unwrap();
        assert_eq!((format.fourcc, format.planes[0].0), (YUYV, 1280));
    }
}
