//! Which device a camera's name means just now. Numbers of nodes change, so they are looked up anew
//! each time.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::config::CameraDevice;
use crate::files::Input;
use crate::{Error, Result};

/// Where the kernel lists them.
const CLASS: &str = "/sys/class/video4linux";
/// Nodes that are looked at, at most.
const NODES: usize = 256;

/// A video device of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub node: PathBuf,
    /// What the driver calls it.
    pub name: String,
    /// Of several nodes of one device, which; a camera's pictures come from the first.
    pub index: u32,
    pub serial: Option<String>,
    pub by_id: Option<String>,
    pub by_path: Option<String>,
}

/// All video devices, by number.
#[must_use]
pub fn list() -> Vec<Found> {
    listed(Path::new(CLASS), Path::new("/dev"))
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|t| !t.is_empty())
}

fn listed(class: &Path, dev: &Path) -> Vec<Found> {
    let links = |kind: &str| -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(dev.join("v4l").join(kind)).into_iter().flatten().flatten();
        let named = entries.take(NODES).filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name, fs::canonicalize(entry.path()).ok()?))
        });
        named.collect()
    };
    let (ids, paths) = (links("by-id"), links("by-path"));
    let entries = fs::read_dir(class).into_iter().flatten().flatten().take(NODES);
    let mut all: Vec<(u32, Found)> = entries
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let number: u32 = file.strip_prefix("video")?.parse().ok()?;
            let node = dev.join(&file);
            let at = entry.path();
            let called = |links: &[(String, PathBuf)]| {
                links.iter().find(|(_, to)| *to == node).map(|(name, _)| name.clone())
            };
            Some((
                number,
                Found {
                    name: read(&at.join("name")).unwrap_or_default(),
                    index: read(&at.join("index")).and_then(|n| n.parse().ok()).unwrap_or(0),
                    // The interface of a USB device lies below the device itself.
                    serial: ["device/serial", "device/../serial"]
                        .iter()
                        .find_map(|part| read(&at.join(part))),
                    by_id: called(&ids),
                    by_path: called(&paths),
                    node,
                },
            ))
        })
        .collect();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, found)| found).collect()
}

/// Opens what a name means now; `None` for a pattern, which needs no device.
///
/// # Errors
/// `CameraAway`, `CameraShut`; of a clip in a camera's place.
pub fn find(
    device: &CameraDevice,
    bus: &dyn Fn(BorrowedFd<'_>) -> Option<String>,
) -> Result<Option<OwnedFd>> {
    let away = || Error::CameraAway { device: device.to_string() };
    let node = |path: &Path| match open(path) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Err(away()),
        Err(source) => Err(Error::CameraShut { device: device.to_string(), source }),
    };
    match device {
        CameraDevice::Pattern => Ok(None),
        CameraDevice::File(path) => {
            // A clip is a file: what is none is refused, not waited for.
            Input::Path(path.clone()).open_clip(&AtomicBool::new(false)).map(Some)
        }
        CameraDevice::Node(path) => node(path),
        CameraDevice::ById(name) => node(&Path::new("/dev/v4l/by-id").join(name)),
        CameraDevice::ByPath(name) => node(&Path::new("/dev/v4l/by-path").join(name)),
        CameraDevice::Serial(serial) => {
            let found = list().into_iter().filter(|f| f.serial.as_ref() == Some(serial));
            let first = found.min_by_key(|f| f.index).ok_or_else(away)?;
            node(&first.node)
        }
        CameraDevice::Bus(wanted) => {
            // A device may have nodes of several kinds, of which the first is the camera.
            let mut found = list();
            found.sort_by_key(|f| f.index);
            let opened = found.iter().filter_map(|f| open(&f.node).ok());
            let mut same = opened.filter(|fd| bus(fd.as_fd()).as_ref() == Some(wanted));
            same.next().map(Some).ok_or_else(away)
        }
    }
}

fn open(path: &Path) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_device_is_known_by_all_its_names() {
        let at = std::env::temp_dir().join(format!("mien-find-{}", std::process::id()));
        let _ = fs::remove_dir_all(&at);
        let at = {
            fs::create_dir_all(&at).unwrap();
            fs::canonicalize(&at).unwrap()
        };
        let (class, dev) = (at.join("class"), at.join("dev"));
        fs::create_dir_all(dev.join("v4l/by-id")).unwrap();
        fs::create_dir_all(at.join("usb/1-2/1-2:1.0")).unwrap();
        fs::write(at.join("usb/1-2/serial"), "A1B2\n").unwrap();
        for (node, name, index) in [("video10", "Door", "1"), ("video2", "Door", "0")] {
            let own = class.join(node);
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("name"), format!("{name}\n")).unwrap();
            fs::write(own.join("index"), index).unwrap();
            symlink(at.join("usb/1-2/1-2:1.0"), own.join("device")).unwrap();
            fs::write(dev.join(node), "").unwrap();
        }
        symlink("../../video2", dev.join("v4l/by-id/usb-Door-index0")).unwrap();
        let found = listed(&class, &dev);
        let names: Vec<_> = found.iter().map(|f| f.node.file_name().unwrap()).collect();
        assert_eq!(names, ["video2", "video10"], "by number, not by text");
        assert_eq!(found[0].serial.as_deref(), Some("A1B2"));
        assert_eq!(found[0].by_id.as_deref(), Some("usb-Door-index0"));
        assert_eq!((found[0].index, found[1].index), (0, 1));
        assert_eq!(found[1].by_id, None);
        fs::remove_dir_all(&at).unwrap();
    }

    #[test]
    fn what_is_not_there_is_away_and_a_folder_is_no_clip() {
        let nobody = |_: BorrowedFd<'_>| None;
        for device in [
            CameraDevice::Node("/dev/video999".into()),
            CameraDevice::ById("nobody".to_owned()),
            CameraDevice::Serial("nobody".to_owned()),
            CameraDevice::Bus("nobody".to_owned()),
        ] {
            let error = find(&device, &nobody).unwrap_err();
            assert!(matches!(error, Error::CameraAway { .. }), "{error}");
        }
        let folder = find(&CameraDevice::File("/tmp".into()), &nobody).unwrap_err();
        assert!(matches!(folder, Error::NoPicture { .. }), "{folder}");
        assert!(find(&CameraDevice::Pattern, &nobody).unwrap().is_none());
    }
}
