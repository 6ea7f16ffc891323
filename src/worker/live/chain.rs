//! The chain: frame by frame from the queue to the sink, whatever becomes of those who look.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use mien_base::clock::Clock;
use mien_base::wire::Event;
use mien_base::wire::live::Live;
use mien_engine::backend::Backend;
use mien_face::anonymise::Overlay;
use mien_face::clip::{Frame, LiveRun, Tools};
use mien_face::gate::Passed;
use mien_face::mark;
use mien_face::models::Models;
use mien_face::policy::Policy;
use mien_face::track::Stir;
use mien_pixels::i420::I420;

use super::board::{Board, one};
use super::ladder::{Ladder, Rung};
use super::look::{Answer, Look};
use super::queue::{Newest, Popped, Taken};
use super::sink::{Hand, Left};
use super::wishes::Wishes;
use crate::camera::now;
use crate::meter::Pulse;
use crate::{Error, Result};

/// How long the queue is waited for before somebody is asked whether it goes on.
const WAIT: Duration = Duration::from_millis(50);
/// How often figures are told.
const TOLD: Duration = Duration::from_secs(1);
/// And before any frame has left, so that the first is told of at once.
const EAGER: Duration = Duration::from_millis(20);
/// Looks that a scene must have had before anything of it is shown: one alone may miss a face.
const SETTLED: u32 = 3;
/// How often the gate looks, and how long its verdict holds.
const GATE: Duration = Duration::from_secs(1);
const VERDICT: Duration = Duration::from_secs(4);

/// What a pipeline is worked on with.
pub(super) struct Chain<'a, B: Backend> {
    pub(super) live: &'a Live,
    pub(super) pulse: &'a Pulse,
    pub(super) board: &'a Arc<Board>,
    pub(super) queue: &'a Newest,
    pub(super) models: &'a mut Models<B>,
    pub(super) policy: &'a mut Policy<B>,
    pub(super) overlay: Option<&'a Overlay<B>>,
    pub(super) clock: &'a dyn Clock,
    pub(super) wishes: Wishes<'a>,
    pub(super) run: LiveRun<B>,
    pub(super) look: &'a Look<B>,
    pub(super) marker: mark::clip::Clip,
    pub(super) sink: SyncSender<Left>,
    pub(super) hands: SyncSender<Hand>,
    pub(super) back: SyncSender<I420>,
    /// Frames from one at which the marks are made anew to the next.
    pub(super) gop: u64,
}

/// Where it stands between two frames.
struct Standing<B: Backend> {
    ladder: Ladder,
    /// Looks since the scene began.
    settled: u32,
    scene: u64,
    /// A look is under way, of this frame.
    asked: Option<u64>,
    gate_asked: bool,
    gate_at: Option<Duration>,
    refused: Option<Arc<str>>,
    failed: Option<Arc<str>>,
    spare: Vec<B::Picture>,
    out: u64,
    idr_due: bool,
    /// The last frame that left was covered whole.
    covered: bool,
    first: Option<Duration>,
    told: Duration,
    /// A first frame was told of.
    shown: bool,
}

/// What is known of a frame when it is its turn.
enum Known {
    Looked,
    Still,
    Not(Arc<str>),
}

impl<B: Backend> Chain<'_, B> {
    /// Runs until it is asked to end (`Cancelled`), the camera is gone, or nobody looks any more.
    pub(super) fn run(mut self, first: Taken) -> Error {
        let mut standing = Standing {
            ladder: Ladder::new(self.live.patience),
            settled: 0,
            scene: 0,
            asked: None,
            gate_asked: false,
            gate_at: None,
            refused: None,
            failed: None,
            spare: Vec::with_capacity(4),
            out: 0,
            idr_due: true,
            covered: false,
            first: None,
            told: now(),
            shown: false,
        };
        if let Err(error) = self.frame(&mut standing, first, 0) {
            return error;
        }
        let mut number = 1;
        loop {
            if let Err(error) = self.pulse.boundary() {
                return error;
            }
            if let Err(error) = self.wishes.take_in(self.policy, self.look, &self.hands, number) {
                return error;
            }
            let at = now();
            let since = at.saturating_sub(standing.told);
            let first = !standing.shown && self.board.left.load(Ordering::Relaxed) > 0;
            if since >= TOLD || first && since >= EAGER {
                (standing.told, standing.shown) = (at, standing.shown || first);
                let (job, stats) = (self.live.job, Box::new(self.board.stats()));
                self.wishes.outbox.send(Event::LiveStats { job, stats });
            }
            match self.queue.pop(WAIT) {
                Popped::Nothing => {}
                Popped::Over(fault) => {
                    let gone = fault == crate::camera::Fault::Gone;
                    return Error::Camera { detail: fault.to_string(), gone };
                }
                Popped::Frame(taken) => {
                    if let Err(error) = self.frame(&mut standing, taken, number) {
                        return error;
                    }
                    number += 1;
                }
            }
        }
    }

    fn tools(&mut self) -> (Tools<'_, B>, &mut LiveRun<B>) {
        let (overlay, clock) = (self.overlay, self.clock);
        (Tools { models: self.models, policy: self.policy, overlay, clock }, &mut self.run)
    }

    /// One frame, from the queue to the sink.
    fn frame(&mut self, standing: &mut Standing<B>, taken: Taken, number: u64) -> Result<()> {
        let Taken { image, shot } = taken;
        let start = now();
        self.board.queued(start.saturating_sub(shot.fetched));
        let stir = self.run.stir(number, &image);
        if stir.scene {
            (standing.settled, standing.scene) = (0, number);
            (standing.gate_at, standing.refused) = (None, None);
        }
        let known = self.find_out(standing, &image, &stir, number, start);
        self.ask_gate(standing, &image, start);
        let looked = matches!(known, Known::Looked);
        let cover = match self.cover(standing, known, &stir, number) {
            Ok(cover) => cover,
            Err(rung) => {
                one(&self.board.withheld);
                let _ = self.back.try_send(image);
                return rung;
            }
        };
        // Marks are held from frame to frame as long as frames are alike.
        standing.idr_due |= standing.covered != cover.is_some() || stir.scene;
        standing.covered = cover.is_some();
        let altering = now();
        self.board.look.add(altering.saturating_sub(start));
        let first = *standing.first.get_or_insert(shot.at.unwrap_or(shot.fetched));
        let at = shot.at.unwrap_or(shot.fetched).saturating_sub(first);
        let frame = Frame { number, at, image };
        let done = {
            let (mut tools, run) = self.tools();
            run.leave(&mut tools, frame, looked, cover)
        };
        let (frame, report) = match done {
            Ok(done) => done,
            Err(error) => {
                // Not even a cover: nothing leaves, and the pool is a frame short.
                one(&self.board.withheld);
                self.board.reason(&error.to_string());
                return Err(Error::Face(error));
            }
        };
        let marking = now();
        self.board.alter.add(marking.saturating_sub(altering));
        let idr = standing.idr_due || standing.out.is_multiple_of(self.gop);
        let altered = report.altered;
        let held = self.run.held();
        self.board.faces.store(report.faces.len() as u32, Ordering::Relaxed);
        self.board.masks.store(held as u32, Ordering::Relaxed);
        if report.covered.is_some() {
            one(&self.board.covered);
        } else if !looked && held > 0 {
            one(&self.board.held);
        }
        report.covered.iter().for_each(|why| self.board.reason(why));
        report.faces.iter().filter_map(|f| f.reason.as_ref()).for_each(|w| self.board.reason(w));
        self.run.recycle(report);
        let frame = self.marker.apply(frame.image, altered, at, idr).map_err(Error::Face)?;
        self.board.mark.add(now().saturating_sub(marking));
        let altered = self.marker.declared();
        let left = Left { frame, at, idr, altered, sequence: shot.sequence, fetched: shot.fetched };
        standing.out += 1;
        standing.idr_due = false;
        match self.sink.try_send(left) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(left)) => {
                // Whoever needs a beginning gets one with the next frame.
                standing.idr_due = left.idr;
                self.board.drop_for("the outputs were slow");
                let _ = self.back.try_send(left.frame.into_image());
                Ok(())
            }
            Err(TrySendError::Disconnected(_)) => Err(crate::clip::stage::gone()),
        }
    }

    /// Lets somebody look at the frame where that is needed, and waits for it as long as may be.
    fn find_out(
        &mut self,
        standing: &mut Standing<B>,
        image: &I420,
        stir: &Stir,
        number: u64,
        start: Duration,
    ) -> Known {
        let most = Duration::from_millis(self.live.patience.look_ms.into());
        // Answers that came meanwhile.
        while let Some(answer) = self.look.answer(Duration::ZERO) {
            self.answered(standing, answer);
        }
        let needed = stir.stirred || standing.settled < SETTLED || self.run.doubts();
        if !needed && standing.asked.is_none() {
            self.run.stands(number);
            one(&self.board.still);
            return Known::Still;
        }
        loop {
            if standing.asked.is_none() && !self.ask(standing, image, number) {
                return Known::Not("nobody could be asked to look".into());
            }
            let left = most.saturating_sub(now().saturating_sub(start));
            let Some(answer) = self.look.answer(left) else {
                return Known::Not("the detector was late".into());
            };
            if let Some(of) = self.answered(standing, answer)
                && of == number
            {
                return match standing.failed.take() {
                    Some(why) => Known::Not(why),
                    None => Known::Looked,
                };
            }
        }
    }

    fn ask(&mut self, standing: &mut Standing<B>, image: &I420, number: u64) -> bool {
        let backend = Arc::clone(self.models.backend());
        let Ok(picture) = self.run.show(&backend, image, standing.spare.pop()) else {
            return false;
        };
        let fell = self.run.follows(number);
        if !self.look.faces(number, picture, fell) {
            return false;
        }
        self.run.ask();
        standing.asked = Some(number);
        one(&self.board.looks);
        true
    }

    /// Takes in what came back; the number of the frame whose faces are known now, or that failed.
    fn answered(&mut self, standing: &mut Standing<B>, answer: Answer<B>) -> Option<u64> {
        match answer {
            Answer::Faces { number, picture, faces } => {
                standing.asked = None;
                let seen = match (faces, &picture) {
                    (Ok(faces), Some(picture)) => {
                        let (mut tools, run) = self.tools();
                        let seen = run.seen(&mut tools, number, picture, &faces);
                        seen.map_err(|error| error.to_string())
                    }
                    (Err(why), _) => Err(why),
                    (Ok(_), None) => Err("its picture was lost".to_owned()),
                };
                keep(&mut standing.spare, picture);
                match seen {
                    Ok(()) if number >= standing.scene => {
                        standing.failed = None;
                        standing.settled += 1;
                        standing.ladder.looked();
                    }
                    Ok(()) => {}
                    Err(why) => {
                        standing.failed = Some(format!("the detector failed: {why}").into());
                    }
                }
                Some(number)
            }
            Answer::Gate { picture, verdict } => {
                standing.gate_asked = false;
                keep(&mut standing.spare, picture);
                self.judged(standing, verdict);
                None
            }
        }
    }

    fn judged(
        &mut self,
        standing: &mut Standing<B>,
        verdict: std::result::Result<Passed<()>, String>,
    ) {
        // What was said of the scene before says nothing of this one.
        let Some(at) = standing.gate_at else { return };
        match verdict {
            Ok(passed) => {
                standing.refused = None;
                self.run.judged(Some(passed), at);
            }
            Err(why) => {
                standing.refused = Some(format!("the content gate: {why}").into());
                self.run.judged(None, at);
            }
        }
    }

    /// Shows a frame to the gate when it is time; nobody waits for the verdict.
    fn ask_gate(&mut self, standing: &mut Standing<B>, image: &I420, at: Duration) {
        let due = standing.gate_at.is_none_or(|last| at.saturating_sub(last) >= GATE);
        if standing.gate_asked || !due || standing.asked.is_some() {
            return;
        }
        let backend = Arc::clone(self.models.backend());
        let Ok(picture) = self.run.show(&backend, image, standing.spare.pop()) else { return };
        if self.look.gate(picture) {
            standing.gate_asked = true;
            standing.gate_at = Some(at);
        }
    }

    /// Why the frame is covered whole, when it is; the error of a frame that must not leave.
    fn cover(
        &mut self,
        standing: &mut Standing<B>,
        known: Known,
        stir: &Stir,
        number: u64,
    ) -> std::result::Result<Option<Arc<str>>, Result<()>> {
        let at = now();
        let doubt = match known {
            Known::Looked => None,
            Known::Still => {
                standing.ladder.looked();
                None
            }
            Known::Not(why) => {
                self.run.unseen(number);
                match standing.ladder.unseen(at, stir.elsewhere) {
                    Rung::Hold => {
                        self.board.reason(&why);
                        None
                    }
                    Rung::Cover => Some(why),
                    Rung::Withhold => {
                        let seconds = u64::from(self.live.patience.withhold_ms / 1000);
                        return Err(Err(Error::Blind { seconds }));
                    }
                }
            }
        };
        if let Some(why) = doubt {
            return Ok(Some(why));
        }
        if standing.settled < SETTLED {
            return Ok(Some("the scene has just begun".into()));
        }
        if let Some(why) = &standing.refused {
            return Ok(Some(Arc::clone(why)));
        }
        match self.run.passed() {
            Some(passed) if at.saturating_sub(passed) < VERDICT => Ok(None),
            _ => Ok(Some("the content gate has not said yes yet".into())),
        }
    }
}

fn keep<P>(spare: &mut Vec<P>, picture: Option<P>) {
    if spare.len() < spare.capacity() {
        spare.extend(picture);
    }
}
