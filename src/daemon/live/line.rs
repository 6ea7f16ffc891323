//! Pipelines as the service knows them: a thread each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::drive::Drive;
use super::outputs::Outlets;
use super::{Line, Lines, Means, PipelineStatus, Wanted, preview};
use crate::config::{CameraDevice, OutputKind, known, swapped};
use crate::errors::file;
use crate::files::Input;
use crate::{Error, Result};

/// Changes that may wait.
const CHANGES: usize = 4;

/// Starts pipelines on cameras.
#[derive(Clone)]
pub struct Pipelines {
    means: Arc<dyn Means>,
}

impl std::fmt::Debug for Pipelines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pipelines")
    }
}

impl Pipelines {
    /// With what they are worked on.
    #[must_use]
    pub fn new(means: Arc<dyn Means>) -> Self {
        Self { means }
    }
}

/// What can be said without touching what runs.
fn check(means: &dyn Means, wanted: &Wanted) -> Result<()> {
    let enrolled = means.known()?;
    for id in swapped(&wanted.recipe).chain(known(&wanted.recipe)) {
        if !enrolled.contains(id) {
            return Err(Error::Vault(mien_vault::Error::SourceUnknown { id: id.clone() }));
        }
    }
    let never = AtomicBool::new(false);
    if let Some(path) = &wanted.overlay {
        Input::Path(path.clone()).open(&never).map(drop)?;
    }
    if let CameraDevice::File(path) = &wanted.camera.device {
        Input::Path(path.clone()).open_clip(&never).map(drop)?;
    }
    for output in &wanted.outputs {
        match &output.kind {
            OutputKind::Segments(of) => folder(&of.dir)?,
            OutputKind::Snapshots(of) => folder(&of.dir)?,
            OutputKind::Mjpeg(of) => preview::token(&of.token).map(drop)?,
            OutputKind::V4l2 { .. } => {}
        }
    }
    Ok(())
}

/// A folder that is there, or can be made.
fn folder(dir: &std::path::Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(file("make the folder", dir))?;
    let access = rustix::fs::access(dir, rustix::fs::Access::WRITE_OK);
    access.map_err(|errno| file("write to the folder", dir)(errno.into()))
}

impl Lines for Pipelines {
    fn check(&self, wanted: &Wanted) -> Result<()> {
        check(self.means.as_ref(), wanted)
    }

    fn start(&self, wanted: &Wanted) -> Result<Box<dyn Line>> {
        check(self.means.as_ref(), wanted)?;
        let outlets = Outlets::open(&wanted.name, &wanted.outputs, Arc::clone(&self.means))?;
        let (changes, changed) = sync_channel(CHANGES);
        let stop = Arc::new(AtomicBool::new(false));
        let mut status = PipelineStatus::new(&wanted.name, &wanted.camera.name);
        status.outputs = outlets.statuses();
        let board = Arc::new(Mutex::new(status));
        let drive = Drive {
            wanted: wanted.clone(),
            means: Arc::clone(&self.means),
            outlets,
            board: Arc::clone(&board),
            stop: Arc::clone(&stop),
            changed,
        };
        let thread = std::thread::Builder::new()
            .name("pipeline".to_owned())
            .spawn(move || drive.run())
            .map_err(|source| Error::Thread { name: "pipeline", source })?;
        let means = Arc::clone(&self.means);
        Ok(Box::new(Thread { means, board, stop, changes, thread: Some(thread) }))
    }
}

/// A pipeline's thread.
struct Thread {
    means: Arc<dyn Means>,
    board: Arc<Mutex<PipelineStatus>>,
    stop: Arc<AtomicBool>,
    changes: SyncSender<Wanted>,
    thread: Option<JoinHandle<()>>,
}

impl Line for Thread {
    fn status(&self) -> PipelineStatus {
        self.board.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn apply(&mut self, wanted: &Wanted) -> Result<()> {
        check(self.means.as_ref(), wanted)?;
        let busy = |_| Error::Busy { name: wanted.name.clone() };
        self.changes.try_send(wanted.clone()).map_err(busy)
    }

    fn stop(self: Box<Self>) {
        drop(self);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it met is told by its status.
            let _ = thread.join();
        }
    }
}
