//! The thread of one pipeline: keeps its camera, its worker and its outputs together.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mien_base::clock::Mono;
use mien_base::error::ErrorKind;
use mien_base::id::{IdentityId, JobId};
use mien_base::model::Manifest;
use mien_base::wire::live::{Camera, Control, Live, LiveStats, Mode, Patience, Pixel};
use mien_base::wire::{Event, Request};

use super::outputs::{Outlets, Said};
use super::{Means, PipelineStatus, State, Wanted, WorkerStatus, find};
use crate::config::{self, CameraDevice, Exposure, PixelFormat, PowerLine};
use crate::files::Input;
use crate::supervise::Supervisor;
use crate::{Error, Result};
use mien_base::error::chain;

/// How long an event is waited for before something else is looked at.
const TICK: Duration = Duration::from_millis(20);
/// How often outputs, models and sources are looked after.
const TEND: Duration = Duration::from_millis(100);
const MODELS: Duration = Duration::from_secs(2);
/// How long a worker may take to end a pipeline; then it dies.
const GRACE: Duration = Duration::from_secs(8);
/// Waits before another worker: doubled from the first to the last.
const WORKER: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// Waits before a camera is looked for again.
const CAMERA: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Waits before what can't be carried out is tried again.
const UNFIT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// After so long without a fault the next one is the first again.
const CALM: Duration = Duration::from_secs(10);
/// Recoveries that are remembered.
const REMEMBERED: usize = 64;
/// What a made picture shows where the configuration does not say.
const PATTERN: ((u32, u32), u32) = ((640, 480), 10_000);

/// One pipeline's thread.
pub(super) struct Drive {
    pub(super) wanted: Wanted,
    pub(super) means: Arc<dyn Means>,
    pub(super) outlets: Outlets,
    pub(super) board: Arc<Mutex<PipelineStatus>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) changed: Receiver<Wanted>,
}

/// Why a run ended.
enum Ended {
    Stopped,
    /// It goes on as is wanted now; another worker is needed when the sources are others.
    Again {
        fresh: bool,
    },
    /// The camera is away.
    Camera(String),
    /// The worker died, hung, or was given up; since then nothing leaves.
    Worker(String, Duration),
    /// What is wanted can't be carried out.
    Unfit(String),
}

/// A worker, and whom it knows.
struct Held {
    worker: Supervisor,
    known: Vec<IdentityId>,
}

/// Figures that go on when the worker does not.
#[derive(Default)]
struct Count {
    /// Of all workers before.
    before: LiveStats,
    /// When figures came last, with frames captured and left.
    last: Option<(Mono, u64, u64)>,
    /// Since then nothing left.
    lost: Option<Mono>,
}

fn waits((first, most): (Duration, Duration), tries: u32) -> Duration {
    first.saturating_mul(1 << tries.min(16)).min(most)
}

/// Adds counts of one worker to those of another; what stands for now is the newer's.
pub(super) fn sum(before: &LiveStats, now: &LiveStats) -> LiveStats {
    let merge = |a: &[(String, u64)], b: &[(String, u64)]| {
        let mut all = a.to_vec();
        for (why, n) in b {
            let room = all.len() < mien_base::limits::CLIP_LISTED;
            match all.iter_mut().find(|(known, _)| known == why) {
                Some((_, sum)) => *sum += n,
                None if room => all.push((why.clone(), *n)),
                None => {}
            }
        }
        all
    };
    LiveStats {
        captured: before.captured + now.captured,
        left: before.left + now.left,
        covered: before.covered + now.covered,
        withheld: before.withheld + now.withheld,
        held: before.held + now.held,
        looks: before.looks + now.looks,
        still: before.still + now.still,
        drops: merge(&before.drops, &now.drops),
        reasons: merge(&before.reasons, &now.reasons),
        ..now.clone()
    }
}

/// What a worker is asked to capture.
#[must_use]
pub fn capture(of: &config::Camera) -> Camera {
    let millihertz = of.fps.map(|fps| (fps * 1000.0).round() as u32);
    match of.device {
        CameraDevice::File(_) => Camera::Clip { millihertz },
        CameraDevice::Pattern => {
            let (size, rate) = PATTERN;
            let size = of.size.unwrap_or(size);
            Camera::Pattern { size, millihertz: millihertz.unwrap_or(rate) }
        }
        _ => {
            let pixel = of.format.map(|format| match format {
                PixelFormat::Mjpg => Pixel::Mjpg,
                PixelFormat::Yuyv => Pixel::Yuyv,
                PixelFormat::Nv12 => Pixel::Nv12,
            });
            let mode = Mode { pixel, size: of.size, millihertz };
            let timeout_ms = u32::try_from(of.timeout.as_millis()).unwrap_or(u32::MAX);
            Camera::V4l2 { mode, controls: controls(of), timeout_ms }
        }
    }
}

/// V4L2 numbers of what is set: power line frequency, and the two of exposure.
fn controls(of: &config::Camera) -> Vec<Control> {
    let line = of.power_line.map(|line| match line {
        PowerLine::Off => 0,
        PowerLine::Hz50 => 1,
        PowerLine::Hz60 => 2,
        PowerLine::Auto => 3,
    });
    let mut all: Vec<Control> =
        line.into_iter().map(|value| Control { id: 0x0098_0918, value }).collect();
    match of.exposure {
        // 3 is aperture priority, which cameras call automatic; 1 is by hand.
        Some(Exposure::Auto) => all.push(Control { id: 0x009a_0901, value: 3 }),
        Some(Exposure::Manual(time)) => {
            all.push(Control { id: 0x009a_0901, value: 1 });
            let value = i32::try_from(time).unwrap_or(i32::MAX);
            all.push(Control { id: 0x009a_0902, value });
        }
        None => {}
    }
    all
}

impl Drive {
    /// Runs until it is told to stop.
    pub(super) fn run(mut self) {
        let mut held: Option<Held> = None;
        let mut count = Count::default();
        let (mut tries, mut calm) = (0, self.now());
        while !self.stop.load(Ordering::Relaxed) {
            let ended = self.once(&mut held, &mut count).unwrap_or_else(|error| self.judge(&error));
            self.fold(&mut count, &ended);
            if self.now().since(calm) > CALM {
                tries = 0;
            }
            calm = self.now();
            let wait = match ended {
                Ended::Stopped => break,
                Ended::Again { fresh } => {
                    if fresh {
                        held = None;
                    }
                    continue;
                }
                Ended::Camera(why) => {
                    self.show(State::CameraLost, Some(why));
                    waits(CAMERA, tries)
                }
                Ended::Worker(why, _) => {
                    self.show(State::WorkerLost, Some(why));
                    if let Some(held) = &mut held {
                        held.worker.give_up();
                    }
                    waits(WORKER, tries)
                }
                Ended::Unfit(why) => {
                    self.show(State::Failed, Some(why));
                    held = None;
                    waits(UNFIT, tries)
                }
            };
            tries += 1;
            self.rest(wait);
            calm = self.now();
        }
        self.show(State::Stopped, None);
    }

    fn now(&self) -> Mono {
        self.means.clock().mono()
    }

    fn with(&self, change: impl FnOnce(&mut PipelineStatus)) {
        change(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn show(&self, state: State, why: Option<String>) {
        let outputs = self.outlets.statuses();
        self.with(|status| {
            (status.state, status.why, status.outputs) = (state, why, outputs);
            if state != State::Running {
                (status.fps, status.captured_fps) = (0.0, 0.0);
                status.worker = None;
            }
        });
    }

    /// Waits, unless it is to stop or something is wanted otherwise.
    fn rest(&mut self, wait: Duration) {
        let start = self.now();
        while self.now().since(start) < wait && !self.stop.load(Ordering::Relaxed) {
            if let Ok(wanted) = self.changed.try_recv() {
                self.wanted = wanted;
                return;
            }
            std::thread::sleep(TICK.min(wait));
        }
    }

    /// What an error means for the pipeline.
    fn judge(&self, error: &Error) -> Ended {
        let why = chain(error);
        let none = Duration::ZERO;
        match error {
            Error::CameraAway { .. } | Error::CameraShut { .. } => Ended::Camera(why),
            Error::Hung { seconds, .. } => {
                Ended::Worker(why, Duration::try_from_secs_f32(*seconds).unwrap_or(none))
            }
            Error::Failed(failure) => match failure.kind {
                ErrorKind::Unreachable | ErrorKind::BadInput => Ended::Camera(why),
                // Nobody has looked for so long.
                ErrorKind::Late => {
                    let silent = Duration::from_millis(Patience::default().withhold_ms.into());
                    Ended::Worker(why, silent)
                }
                ErrorKind::Worker | ErrorKind::Internal => Ended::Worker(why, none),
                ErrorKind::Cancelled => Ended::Again { fresh: false },
                _ => Ended::Unfit(why),
            },
            error if error.blames_worker() => Ended::Worker(why, none),
            _ => Ended::Unfit(why),
        }
    }

    /// Takes the figures of a worker that is over into those of all.
    fn fold(&self, count: &mut Count, ended: &Ended) {
        let now = self.now();
        self.with(|status| {
            let mut stats = status.stats.clone();
            let (what, since) = match ended {
                Ended::Worker(_, silent) => {
                    status.workers_lost = status.workers_lost.saturating_add(1);
                    (Some("the worker was lost"), *silent)
                }
                Ended::Camera(_) if status.state == State::Running => {
                    status.reopened = status.reopened.saturating_add(1);
                    (Some("the camera was lost"), Duration::ZERO)
                }
                _ => (None, Duration::ZERO),
            };
            if let Some(what) = what {
                let once =
                    LiveStats { reasons: vec![(what.to_owned(), 1)], ..LiveStats::default() };
                stats = LiveStats { lags: stats.lags.clone(), ..sum(&stats, &once) };
                if status.state == State::Running {
                    count.lost.get_or_insert(Mono(now.0.saturating_sub(since)));
                }
            }
            (stats.faces, stats.masks, stats.queue_us) = (0, 0, 0);
            status.stats = stats.clone();
            count.before = stats;
        });
        count.last = None;
    }

    /// One run of a worker on a camera.
    fn once(&mut self, held: &mut Option<Held>, count: &mut Count) -> Result<Ended> {
        let means = Arc::clone(&self.means);
        let wanted = self.wanted.clone();
        let node = find(&wanted.camera.device, &|fd| means.bus(fd))?;
        let held = match held {
            Some(held) => held,
            none => {
                let known = means.known()?;
                // The watch comes before what it watches is read: what changes between is told.
                let mut worker = means.worker(&wanted.worker, &known)?;
                worker.set_policy(means.policy(&known)?);
                none.insert(Held { worker, known })
            }
        };
        let wall = means.clock().wall();
        let (job, counter) = means.job(wall)?;
        let (outputs, files) = self.outlets.begin(job)?;
        let mut fds: Vec<OwnedFd> = node.into_iter().chain(files).collect();
        if let Some(path) = &wanted.overlay {
            fds.push(Input::Path(path.clone()).open(&self.stop)?);
        }
        let mut recipe = wanted.recipe.clone();
        recipe.mark.counter = counter;
        let live = Live {
            job,
            recipe,
            camera: capture(&wanted.camera),
            patience: Patience::default(),
            outputs,
            wall,
            overlay: wanted.overlay.is_some(),
        };
        let serving = held.worker.live(live, &fds)?;
        // A camera that is gone must not be held here.
        drop(fds);
        self.pump(held, count, job, serving)
    }

    /// Takes in what the worker says until the run is over.
    fn pump(
        &mut self,
        held: &mut Held,
        count: &mut Count,
        job: JobId,
        mut serving: Vec<Manifest>,
    ) -> Result<Ended> {
        let (mut tended, mut looked) = (self.now(), self.now());
        let mut ending: Option<(Mono, Ended)> = None;
        loop {
            if ending.is_none()
                && let Some(next) = self.is_over(held, &mut serving, &mut looked)?
            {
                held.worker.live_say(&Request::Cancel { job }, &[])?;
                ending = Some((self.now(), next));
            }
            if let Some((since, _)) = &ending
                && self.now().since(*since) > GRACE
            {
                held.worker.give_up();
                return Ok(ending.map_or(Ended::Stopped, |(_, next)| next));
            }
            if self.now().since(tended) >= TEND {
                tended = self.now();
                let said = self.outlets.tend();
                self.say(held, said)?;
                self.tell(held);
            }
            let event = match held.worker.live_next(TICK) {
                Ok(Some(event)) => event,
                Ok(None) => continue,
                // It ended before it had begun.
                Err(error) => match ending {
                    Some((_, next)) if error.kind() == ErrorKind::Cancelled => return Ok(next),
                    _ => return Err(error),
                },
            };
            match event {
                Event::LiveBegan { delivers, .. } => {
                    self.with(|status| status.delivers = Some(delivers));
                    self.show(State::Running, None);
                }
                Event::LiveStats { stats, .. } => self.count(count, &stats),
                Event::LiveWhole { whole, .. } => {
                    let said = self.outlets.whole(whole)?;
                    self.say(held, said)?;
                }
                Event::LiveJpeg { output, slot, bytes, .. } => {
                    let said = self.outlets.jpeg(output, slot, bytes)?;
                    self.say(held, said)?;
                }
                Event::LiveEnded { stats, .. } => {
                    self.count(count, &stats);
                    return Ok(ending.map_or(Ended::Again { fresh: false }, |(_, next)| next));
                }
                _ => return Err(Error::Protocol { what: "an answer that nobody asked for" }),
            }
        }
    }

    /// Why the run must end now, if it must.
    fn is_over(
        &mut self,
        held: &mut Held,
        serving: &mut Vec<Manifest>,
        looked: &mut Mono,
    ) -> Result<Option<Ended>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Some(Ended::Stopped));
        }
        if let Ok(wanted) = self.changed.try_recv() {
            self.wanted = wanted;
            return Ok(Some(Ended::Again { fresh: false }));
        }
        if self.now().since(*looked) >= MODELS {
            *looked = self.now();
            if self.means.known()? != held.known {
                return Ok(Some(Ended::Again { fresh: true }));
            }
            if !held.worker.live_models(&self.wanted.recipe, serving)? {
                return Ok(Some(Ended::Again { fresh: true }));
            }
        }
        Ok(None)
    }

    fn say(&self, held: &mut Held, said: Vec<Said>) -> Result<()> {
        for (request, fd) in said {
            match fd {
                Some(fd) => held.worker.live_say(&request, &[fd.as_fd()])?,
                None => held.worker.live_say(&request, &[])?,
            }
        }
        Ok(())
    }

    /// Worker and outputs as they stand.
    fn tell(&self, held: &mut Held) {
        let worker = held.worker.live_facts().map(|facts| WorkerStatus {
            pid: facts.pid,
            rss_kib: facts.rss_kib,
            held: facts.hello.sandbox.holds(),
        });
        let outputs = self.outlets.statuses();
        self.with(|status| (status.worker, status.outputs) = (worker, outputs));
    }

    /// Figures of the worker at hand.
    fn count(&self, count: &mut Count, stats: &LiveStats) {
        let now = self.now();
        let rate = count.last.map(|(at, captured, left)| {
            let seconds = now.since(at).as_secs_f32();
            let each = |new: u64, old: u64| new.saturating_sub(old) as f32 / seconds.max(1e-3);
            (seconds, each(stats.captured, captured), each(stats.left, left))
        });
        self.with(|status| {
            status.stats = sum(&count.before, stats);
            status.moved = status.stats.left;
            if let Some((_, captured, left)) = rate.filter(|(seconds, ..)| *seconds > 0.5) {
                (status.captured_fps, status.fps) = (captured, left);
            }
            if stats.left > 0
                && let Some(lost) = count.lost.take()
            {
                let millis = u64::try_from(now.since(lost).as_millis()).unwrap_or(u64::MAX);
                if status.recoveries_ms.len() >= REMEMBERED {
                    status.recoveries_ms.remove(0);
                }
                status.recoveries_ms.push(millis);
            }
        });
        if rate.is_none_or(|(seconds, ..)| seconds > 0.5) {
            count.last = Some((now, stats.captured, stats.left));
        }
    }
}
