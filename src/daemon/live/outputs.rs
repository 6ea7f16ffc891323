//! A pipeline's outputs: what the worker is handed for each, and what becomes of what it made.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use mien_base::clock::Wall;
use mien_base::id::JobId;
use mien_base::limits;
use mien_base::wire::Request;
use mien_base::wire::live::{self, Whole};
use mien_vault::digest;
use rustix::io::Errno;
use serde_json::json;

use super::folder::Folder;
use super::preview::Preview;
use super::{Means, OutputStatus, find};
use crate::config::{self, CameraDevice, Mjpeg, OutputKind, Segments, Snapshots};
use crate::files::Pending;
use crate::stream::memfd;
use crate::{Error, Result};
use mien_base::error::chain;

/// Room for one JPEG picture, in bytes; only what is written takes memory.
const SLOT: u32 = 8 << 20;

/// What the worker is told, with the descriptor that goes along.
pub(super) type Said = (Request, Option<OwnedFd>);

/// All outputs, by their index in the request.
pub(super) struct Outlets {
    all: Vec<Outlet>,
    pipeline: String,
    job: JobId,
    means: Arc<dyn Means>,
}

struct Outlet {
    kind: Kind,
    status: OutputStatus,
}

enum Kind {
    Segments {
        of: Segments,
        folder: Folder,
        /// What the worker writes to, in that order.
        open: VecDeque<Pending>,
        /// Files that the worker waits for.
        owed: usize,
    },
    Node(CameraDevice),
    Preview {
        of: Mjpeg,
        server: Preview,
        memory: Option<OwnedFd>,
        /// Slots that the worker does not have.
        held: Vec<u8>,
    },
    Stills {
        of: Snapshots,
        folder: Folder,
        memory: Option<OwnedFd>,
    },
}

impl std::fmt::Debug for Outlets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all.iter().map(|outlet| &outlet.status.name)).finish()
    }
}

fn read_slot(memory: &OwnedFd, slot: u8, bytes: u32) -> std::result::Result<Vec<u8>, Errno> {
    if slot >= limits::LIVE_SLOTS || bytes > SLOT {
        return Err(Errno::INVAL);
    }
    let mut all = vec![0; bytes as usize];
    let (mut at, start) = (0, u64::from(slot) * u64::from(SLOT));
    while let Some(rest) = all.get_mut(at..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(memory, rest, start + at as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => at += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(all)
}

fn digest_of(fd: BorrowedFd<'_>, name: &Path) -> Result<String> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let failed = crate::errors::file("read", name);
    let digest = File::open(path).and_then(|file| digest::of_reader(file, limits::CLIP_FILE));
    digest.map(|(digest, _)| digest).map_err(failed)
}

impl Outlets {
    /// Opens folders and sockets.
    ///
    /// # Errors
    /// `File`, `Listen`; of the token's file.
    pub(super) fn open(
        pipeline: &str,
        outputs: &[config::Output],
        means: Arc<dyn Means>,
    ) -> Result<Self> {
        let mut all = Vec::new();
        for output in outputs {
            let name = output.name.as_str();
            let (kind, word) = match &output.kind {
                OutputKind::Segments(of) => {
                    let folder = Folder::open(&of.dir, name, "mp4", of.keep)?;
                    let kind =
                        Kind::Segments { of: of.clone(), folder, open: VecDeque::new(), owed: 0 };
                    (kind, "segments")
                }
                OutputKind::V4l2 { device } => (Kind::Node(device.clone()), "v4l2"),
                OutputKind::Mjpeg(of) => {
                    let server = Preview::start(of)?;
                    let (of, held) = (of.clone(), Vec::new());
                    (Kind::Preview { of, server, memory: None, held }, "mjpeg")
                }
                OutputKind::Snapshots(of) => {
                    let folder = Folder::open(&of.dir, name, "jpg", of.keep)?;
                    (Kind::Stills { of: of.clone(), folder, memory: None }, "snapshots")
                }
            };
            let status = OutputStatus {
                name: name.to_owned(),
                kind: word,
                delivered: 0,
                bytes: 0,
                viewers: 0,
                fault: None,
            };
            all.push(Outlet { kind, status });
        }
        Ok(Self { all, pipeline: pipeline.to_owned(), job: JobId([0; 16]), means })
    }

    /// What a new worker is handed; what the one before was at is let go.
    ///
    /// # Errors
    /// When a file can't be begun, or a device is not there.
    pub(super) fn begin(&mut self, job: JobId) -> Result<(Vec<live::Output>, Vec<OwnedFd>)> {
        self.job = job;
        let now = self.means.clock().wall();
        let (mut outputs, mut fds) = (Vec::new(), Vec::new());
        let memory = |memory: &mut Option<OwnedFd>| -> Result<OwnedFd> {
            let held = |source| Error::Memory { what: "pictures", source };
            let fd = memfd().map_err(held)?;
            let ours = rustix::io::fcntl_dupfd_cloexec(&fd, 3).map_err(held)?;
            *memory = Some(ours);
            Ok(fd)
        };
        for outlet in &mut self.all {
            outlet.status.fault = None;
            outputs.push(match &mut outlet.kind {
                Kind::Segments { of, folder, open, owed } => {
                    open.clear();
                    *owed = 0;
                    for _ in 0..2 {
                        let pending = folder.begin(now)?;
                        fds.push(dup(&pending)?);
                        open.push_back(pending);
                    }
                    let millis = u32::try_from(of.length.as_millis()).unwrap_or(u32::MAX);
                    live::Output::Segments { millis, bytes: of.bytes, quality: of.quality }
                }
                Kind::Node(device) => {
                    let means = &self.means;
                    let node = find(device, &|fd| means.bus(fd))?;
                    let away = || Error::CameraAway { device: device.to_string() };
                    fds.push(node.ok_or_else(away)?);
                    live::Output::V4l2
                }
                Kind::Preview { of, memory: keep, held, .. } => {
                    held.clear();
                    fds.push(memory(keep)?);
                    let every_ms = 1000 / of.fps.max(1);
                    live::Output::Jpeg { slot: SLOT, quality: of.quality, every_ms }
                }
                Kind::Stills { of, memory: keep, .. } => {
                    fds.push(memory(keep)?);
                    let every_ms = u32::try_from(of.every.as_millis()).unwrap_or(u32::MAX);
                    live::Output::Jpeg { slot: SLOT, quality: of.quality, every_ms }
                }
            });
        }
        Ok((outputs, fds))
    }

    /// A recording is whole: it gets its name, and the worker its next file.
    ///
    /// # Errors
    /// `Protocol` when there is no such output.
    pub(super) fn whole(&mut self, whole: Whole) -> Result<Vec<Said>> {
        let (means, job, pipeline) = (Arc::clone(&self.means), self.job, self.pipeline.clone());
        let outlet = self.all.get_mut(usize::from(whole.output));
        let Some(Outlet { kind: Kind::Segments { folder, open, owed, .. }, status }) = outlet
        else {
            return Err(Error::Protocol { what: "a recording of an output that is none" });
        };
        let pending = open.pop_front();
        let pending = pending.ok_or(Error::Protocol { what: "a recording that nobody began" })?;
        *owed += 1;
        if whole.bytes > 0 {
            let now = means.clock().wall();
            let start = Wall(now.0.saturating_sub(whole.millis / 1000));
            let path = folder.name(start);
            let kept = digest_of(pending.as_fd(), &path).and_then(|digest| {
                let body = json!({
                    "outcome": "done",
                    "what": "recording",
                    "pipeline": pipeline,
                    "output": digest,
                    "bytes": whole.bytes,
                    "frames": whole.frames,
                    "millis": whole.millis,
                });
                means.record(job, body)?;
                pending.named(&path).commit(whole.bytes)
            });
            match kept {
                Ok(()) => {
                    folder.took(path, whole.bytes, now);
                    status.delivered += 1;
                    status.bytes += whole.bytes;
                }
                Err(error) => status.fault = Some(chain(&error)),
            }
        } else {
            status.fault = Some("a file could not be written; is the disk full?".to_owned());
        }
        Ok(self.owed(usize::from(whole.output)))
    }

    /// Files that an output is still owed, as far as there is room.
    fn owed(&mut self, index: usize) -> Vec<Said> {
        let (job, now) = (self.job, self.means.clock().wall());
        let mut said = Vec::new();
        let Some(Outlet { kind: Kind::Segments { folder, open, owed, .. }, status }) =
            self.all.get_mut(index)
        else {
            return said;
        };
        while *owed > 0 {
            let begun = folder.begin(now).and_then(|pending| Ok((dup(&pending)?, pending)));
            match begun {
                Ok((fd, pending)) => {
                    open.push_back(pending);
                    *owed -= 1;
                    let output = index as u8;
                    said.push((Request::LiveFile { job, output }, Some(fd)));
                    status.fault = None;
                }
                Err(error) => {
                    status.fault = Some(chain(&error));
                    break;
                }
            }
        }
        said
    }

    /// A picture stands in a slot.
    ///
    /// # Errors
    /// `Protocol` when there is no such output or slot.
    pub(super) fn jpeg(&mut self, output: u8, slot: u8, bytes: u32) -> Result<Vec<Said>> {
        let (means, job) = (Arc::clone(&self.means), self.job);
        let broken = Error::Protocol { what: "a picture of an output that has none" };
        let Some(Outlet { kind, status }) = self.all.get_mut(usize::from(output)) else {
            return Err(broken);
        };
        let read = |memory: &Option<OwnedFd>| -> Result<Vec<u8>> {
            let what = "a picture that is not there";
            let memory = memory.as_ref().ok_or(Error::Protocol { what })?;
            read_slot(memory, slot, bytes).map_err(|_| Error::Protocol { what })
        };
        match kind {
            Kind::Stills { folder, memory, .. } => {
                let picture = read(memory)?;
                let now = means.clock().wall();
                let path = folder.name(now);
                let kept = folder.begin(now).and_then(|pending| {
                    let body = json!({
                        "outcome": "done",
                        "what": "snapshot",
                        "pipeline": self.pipeline,
                        "output": digest::of(&picture),
                        "bytes": bytes,
                    });
                    means.record(job, body)?;
                    pending.named(&path).commit_bytes(&picture)
                });
                match kept {
                    Ok(()) => {
                        folder.took(path, u64::from(bytes), now);
                        status.delivered += 1;
                        status.bytes += u64::from(bytes);
                        status.fault = None;
                    }
                    Err(error) => status.fault = Some(chain(&error)),
                }
                Ok(vec![(Request::LiveTaken { job, output, slot }, None)])
            }
            Kind::Preview { server, memory, held, .. } => {
                if server.viewers() == 0 {
                    // Nobody looks: the slot stays here, so that no more are made.
                    if !held.contains(&slot) && slot < limits::LIVE_SLOTS {
                        held.push(slot);
                    }
                    return Ok(Vec::new());
                }
                server.show(read(memory)?);
                status.delivered += 1;
                status.bytes += u64::from(bytes);
                Ok(vec![(Request::LiveTaken { job, output, slot }, None)])
            }
            Kind::Segments { .. } | Kind::Node(_) => Err(broken),
        }
    }

    /// Looked after often: who began to look, what now has room.
    pub(super) fn tend(&mut self) -> Vec<Said> {
        let job = self.job;
        let mut said = Vec::new();
        for index in 0..self.all.len() {
            said.extend(self.owed(index));
        }
        for (index, outlet) in self.all.iter_mut().enumerate() {
            if let Kind::Preview { server, held, .. } = &mut outlet.kind {
                outlet.status.viewers = server.viewers();
                if outlet.status.viewers > 0 {
                    let output = index as u8;
                    let back = held.drain(..);
                    said.extend(back.map(|slot| (Request::LiveTaken { job, output, slot }, None)));
                }
            }
        }
        said
    }

    /// How they stand.
    pub(super) fn statuses(&self) -> Vec<OutputStatus> {
        self.all.iter().map(|outlet| outlet.status.clone()).collect()
    }
}

fn dup(pending: &Pending) -> Result<OwnedFd> {
    let held = |source| Error::Memory { what: "a recording", source };
    rustix::io::fcntl_dupfd_cloexec(pending.as_fd(), 3).map_err(held)
}
