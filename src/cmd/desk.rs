//! What a command works with: stores, models, clock, and the supervised worker. Composition only.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use mien_base::clock::{Clock, Mono, SystemClock, Wall};
use mien_base::consent::{ConsentRecord, Scope, SourceRecord};
use mien_base::id::{IdentityId, JobId};
use mien_base::limits;
use mien_base::recipe::{Mark, Recipe};
use mien_base::wire;
use mien_base::wire::clip::{ClipOutput, Range};
use mien_daemon::files::{Input, Output};
use mien_daemon::segments::Segments;
use mien_daemon::store::Store;
use mien_daemon::supervise::{
    ClipFinished, ClipJob, EnrolJob, Finished, Policy, ProcessJob, Seal, SheetJob, Source,
    Supervisor, Watch, WorkerConfig,
};
use mien_vault::{Home, ModelStore, SourceStore as _};

use super::args::{FormatArg, RunArgs};
use super::error::{Error, Result};
use super::inputs::Task;
use super::recipe::{self, Asked};
use super::record::{self, Recorder};

/// Stores, clock and worker of one command.
#[derive(Debug)]
pub(crate) struct Desk {
    pub home: Home,
    pub sources: Arc<Store>,
    pub clock: Arc<SystemClock>,
    pub worker: Supervisor,
    /// Wall time of the jobs.
    pub wall: Wall,
    job: Option<JobId>,
    /// Job ids and the clock are given.
    pinned: (bool, bool),
    jobs: u64,
    start: Mono,
    policy: Policy,
    pub recorder: Arc<Recorder>,
    /// Signs finished pictures, when asked to.
    pub seal: Option<Box<dyn Seal>>,
}

/// An input as the command line writes it; `-` is standard input.
pub(crate) fn input(path: &Path) -> Input {
    if path.as_os_str() == "-" { Input::Stdin } else { Input::Path(path.to_owned()) }
}

/// An output as the command line writes it; `-` is standard output.
pub(crate) fn output(path: &Path) -> Output {
    if path.as_os_str() == "-" { Output::Stdout } else { Output::Path(path.to_owned()) }
}

/// Reads a text file of the user's, of at most `limits::TEXT_FILE` bytes.
pub(crate) fn read_text(what: &'static str, path: &Path) -> Result<String> {
    let failed = |source| Error::File { what, path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    file.take(limits::TEXT_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > limits::TEXT_FILE {
        let most = limits::TEXT_FILE >> 10;
        return Err(Error::Usage(format!("`{}` has more than {most} KiB", path.display())));
    }
    Ok(text)
}

/// The identity that a consent record is bound to, when it says so.
fn named_in(consent: &str) -> Option<IdentityId> {
    let name = match consent.parse::<toml::Table>() {
        Ok(table) => table.get("identity")?.as_str()?.to_owned(),
        Err(_) => {
            let value: serde_json::Value = serde_json::from_str(consent).ok()?;
            value.get("identity")?.as_str()?.to_owned()
        }
    };
    name.parse().ok()
}

/// One clip to be made.
#[derive(Debug)]
pub(crate) struct ClipTask<'a> {
    pub input: &'a Input,
    pub output: &'a Path,
    pub write: ClipOutput,
    pub range: Option<Range>,
}

fn make_folder(output: &Path) -> Result<()> {
    let Some(folder) = output.parent().filter(|p| *p != Path::new("")) else { return Ok(()) };
    fs::create_dir_all(folder).map_err(|source| Error::File {
        what: "Can't make the folder",
        path: folder.to_owned(),
        source,
    })
}

/// Sets a flag at Ctrl-C and at SIGTERM; a second signal ends the program at once.
pub(crate) fn stop_on_signal(stop: &Arc<AtomicBool>) -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|source| Error::Signal { source })?;
    }
    Ok(())
}

impl Desk {
    /// Opens the stores and starts the worker, with every enrolled source known to it.
    pub(crate) fn open(run: &RunArgs) -> Result<Self> {
        Self::open_for(run, false)
    }

    /// As `open`; with `clips` its worker may write files as large as clips become.
    pub(crate) fn open_for(run: &RunArgs, clips: bool) -> Result<Self> {
        let mut desk = Self::open_bare_for(run, clips)?;
        desk.know_all()?;
        Ok(desk)
    }

    fn know_all(&mut self) -> Result<()> {
        let ids = self.sources.list()?;
        if ids.len() > limits::IDENTITIES {
            let (found, most) = (ids.len(), limits::IDENTITIES);
            let text = format!("{found} sources are enrolled, at most {most} can be known at once");
            return Err(Error::Usage(text));
        }
        // Before anything is read: what changes from here on is told.
        let watch = record::Consents::new(&self.sources, ids.clone())?;
        self.worker.watch_consent(Box::new(watch));
        for id in &ids {
            let stored = self.sources.get(id)?;
            self.know(stored.record, stored.portrait, stored.consents);
        }
        Ok(())
    }

    /// Opens the stores and starts the worker; no source is known to it.
    pub(crate) fn open_bare(run: &RunArgs) -> Result<Self> {
        Self::open_bare_for(run, false)
    }

    fn open_bare_for(run: &RunArgs, clips: bool) -> Result<Self> {
        let home = Home::from_env()?;
        let sources = Arc::new(record::open(&home, Arc::new(SystemClock::start()), run.quiet)?);
        let desk = Self::assemble(&home, sources, run, clips)?;
        stop_on_signal(&desk.worker.cancel_handle().flag())?;
        if clips {
            // Held with us: the worker is in a process group of its own.
            signal_hook::flag::register(signal_hook::consts::SIGTSTP, desk.worker.pause_flag())
                .map_err(|source| Error::Signal { source })?;
        }
        Ok(desk)
    }

    /// For jobs: over a store that is open, with every enrolled source known, deaf to signals.
    pub(crate) fn open_for_jobs(home: &Home, store: &Arc<Store>, run: &RunArgs) -> Result<Self> {
        let mut desk = Self::assemble(home, store.clone(), run, true)?;
        desk.know_all()?;
        Ok(desk)
    }

    /// From now on it works for this job.
    pub(crate) fn begin(&mut self, job: JobId) {
        (self.job, self.jobs, self.pinned, self.wall) =
            (Some(job), 0, (true, false), self.clock.wall());
        self.recorder = Arc::new(Recorder {
            store: self.sources.clone(),
            clock: self.clock.clone(),
            wall: self.wall,
            lenient: self.recorder.lenient,
        });
        self.worker.set_witness(self.recorder.clone());
    }

    fn assemble(home: &Home, sources: Arc<Store>, run: &RunArgs, clips: bool) -> Result<Self> {
        let (home, clock) = (home.clone(), Arc::new(SystemClock::start()));
        let mut config = WorkerConfig::this_program()?;
        config.unsandboxed = run.allow_unsandboxed;
        if clips {
            config.file_mib = u32::try_from(limits::CLIP_FILE >> 20).unwrap_or(u32::MAX);
        }
        if let Some(threads) = run.threads {
            let wanted = || Error::Usage("--threads takes 1 to 256".to_owned());
            let threads = u16::try_from(threads).map_err(|_| wanted())?;
            config.threads =
                if (1..=256).contains(&threads) { threads } else { return Err(wanted()) };
        }
        let job = run.job.as_deref().map(|text| {
            text.parse().map_err(|_| Error::Usage("--job takes 32 hex digits".to_owned()))
        });
        let job = job.transpose()?;
        let models = Box::new(ModelStore::new(&home, clock.clone()));
        let mut worker = Supervisor::start(config, models, clock.clone())?;
        let wall = run.clock.map_or_else(|| clock.wall(), Wall);
        let start = clock.mono();
        let recorder = Arc::new(Recorder {
            store: sources.clone(),
            clock: clock.clone(),
            wall,
            lenient: run.allow_unaudited,
        });
        worker.set_witness(recorder.clone());
        let pinned = (job.is_some(), run.clock.is_some());
        let policy = Policy::default();
        Ok(Self {
            home,
            sources,
            clock,
            worker,
            wall,
            job,
            pinned,
            jobs: 0,
            start,
            policy,
            recorder,
            seal: None,
        })
    }

    /// Adds a source to what the worker knows.
    pub(crate) fn know(
        &mut self,
        record: SourceRecord,
        portrait: Vec<u8>,
        consents: Vec<ConsentRecord>,
    ) {
        self.policy.sources.retain(|source| source.record.identity != record.identity);
        self.policy.sources.push(Source { record, portrait, consents });
        self.worker.set_policy(self.policy.clone());
    }

    /// Time since the desk was opened.
    pub(crate) fn passed(&self) -> Duration {
        self.clock.mono().since(self.start)
    }

    /// The id of the next job: random, or the given one plus a count.
    pub(crate) fn next_job(&mut self) -> Result<JobId> {
        let base = match self.job {
            Some(job) => job,
            None => {
                let mut bytes = [0; 16];
                let mut random = fs::File::open("/dev/urandom").map_err(Error::random)?;
                random.read_exact(&mut bytes).map_err(Error::random)?;
                self.job = Some(JobId(bytes));
                JobId(bytes)
            }
        };
        let number = u128::from_be_bytes(base.0).wrapping_add(u128::from(self.jobs));
        self.jobs += 1;
        Ok(JobId(number.to_be_bytes()))
    }

    /// Processes one picture.
    pub(crate) fn process(&mut self, task: &Task, asked: &Asked, quality: u8) -> Result<Finished> {
        self.process_input(&input(&task.input), task, asked, quality)
    }

    /// Processes one picture that was opened already.
    pub(crate) fn process_input(
        &mut self,
        input: &Input,
        task: &Task,
        asked: &Asked,
        quality: u8,
    ) -> Result<Finished> {
        make_folder(&task.output)?;
        let job = self.next_job()?;
        let mut recipe = asked.recipe.clone();
        recipe.mark.counter = recipe::counter(job, self.wall);
        let overlay = asked.overlay.as_ref().map(|path| Input::Path(path.clone()));
        let job = ProcessJob {
            job,
            recipe: &recipe,
            input,
            output: &output(&task.output),
            overlay: overlay.as_ref(),
            write: wire::Output { format: task.format.and_then(FormatArg::picture), quality },
            wall: self.wall,
        };
        let (id, done) = (job.job, self.worker.process_sealed(&job, self.seal.as_deref()));
        self.ended(id, done)
    }

    /// Records a job that failed; one that is done was recorded before its output appeared.
    fn ended<T>(&self, job: JobId, done: mien_daemon::Result<T>) -> Result<T> {
        done.map_err(|error| {
            self.recorder.failed(job, &error);
            error.into()
        })
    }

    /// Processes one clip; goes on with what an interrupted run of the same left.
    pub(crate) fn process_clip(
        &mut self,
        clip: &ClipTask<'_>,
        asked: &Asked,
        watch: &mut Watch<'_>,
    ) -> Result<ClipFinished> {
        make_folder(clip.output)?;
        let (fresh, wall) = (self.next_job()?, self.wall);
        let overlay = asked.overlay.as_ref().map(|path| Input::Path(path.clone()));
        let output = output(clip.output);
        let draft = ClipJob {
            job: fresh,
            recipe: &asked.recipe,
            input: clip.input,
            output: &output,
            overlay: overlay.as_ref(),
            write: clip.write,
            range: clip.range,
            wall,
        };
        let pinned = (self.pinned.0.then_some(fresh), self.pinned.1.then_some(wall));
        let segments = self.worker.segments(&draft, pinned)?;
        let begun = segments.as_ref().and_then(Segments::begun);
        let (job, wall) = begun.unwrap_or((fresh, wall));
        let mut recipe = asked.recipe.clone();
        recipe.mark.counter = recipe::counter(job, wall);
        let job = ClipJob { job, wall, recipe: &recipe, ..draft };
        let done = self.worker.clip(&job, segments, self.seal.as_deref(), watch);
        self.ended(job.job, done)
    }

    /// Measures a face for enrolment: its record and its portrait.
    pub(crate) fn enrol(
        &mut self,
        identity: &IdentityId,
        picture: &Path,
    ) -> Result<(SourceRecord, Vec<u8>)> {
        let job = self.next_job()?;
        let wall = self.wall;
        let detect = Recipe::default().detect;
        let input = input(picture);
        Ok(self.worker.enrol(&EnrolJob { job, identity, detect: &detect, input: &input, wall })?)
    }

    /// Takes a source from a picture and its consent record, for this command only.
    pub(crate) fn borrow_source(&mut self, picture: &Path, consent: &Path) -> Result<IdentityId> {
        let text = read_text("Can't read the consent record", consent)?;
        let identity = named_in(&text).unwrap_or_else(|| "given".parse().expect("a valid name"));
        let consent = mien_vault::consent::parse(&text, &identity)?;
        let (record, portrait) = self.enrol(&identity, picture)?;
        self.recorder.borrowed(&consent)?;
        self.know(record, portrait, vec![consent]);
        Ok(identity)
    }

    /// How a picture is marked that no recipe speaks of.
    pub(crate) fn sign(&self, job: JobId) -> Mark {
        Mark { counter: recipe::counter(job, self.wall), ..Recipe::default().mark }
    }

    /// Lays pictures side by side into one.
    pub(crate) fn sheet(
        &mut self,
        pictures: &[PathBuf],
        columns: u8,
        cell: (u16, u16),
        sheet: &Path,
        quality: u8,
    ) -> Result<()> {
        let job = self.next_job()?;
        let inputs: Vec<Input> = pictures.iter().map(|path| input(path)).collect();
        let format = super::inputs::picture_by_name("--preview", sheet)?;
        let write = wire::Output { format, quality };
        let output = output(sheet);
        self.worker.sheet(&SheetJob {
            job,
            inputs: &inputs,
            columns,
            cell,
            output: &output,
            write,
            mark: &self.sign(job),
            wall: self.wall,
        })?;
        Ok(())
    }

    /// A 16:9 picture of `height` pixels out of another one, for measuring.
    pub(crate) fn frame(&mut self, picture: &Path, height: u16, to: &Path) -> Result<()> {
        let width = u16::try_from(u32::from(height) * 16 / 9).unwrap_or(u16::MAX);
        self.sheet(&[picture.to_owned()], 1, (width, height), to, 92)
    }

    /// A source that may be swapped in now, or the reason why not.
    pub(crate) fn check_swap(&self, identity: &IdentityId) -> Result<()> {
        self.check_known(identity)?;
        let source = self.policy.sources.iter().find(|s| s.record.identity == *identity);
        let now = self.wall;
        let consents = source.map_or(&[][..], |source| &source.consents);
        let fault = |c: &ConsentRecord| {
            if c.revoked.is_some() {
                Some("took its consent back".to_owned())
            } else if c.expires <= now {
                Some(format!("had consent until {}; it has expired", c.expires))
            } else if c.granted > now {
                Some(format!("has consent only from {} on", c.granted))
            } else if !c.scope.contains(&Scope::Swap) {
                Some("has consent, but not with scope `swap`".to_owned())
            } else {
                None
            }
        };
        if consents.iter().any(|consent| fault(consent).is_none()) {
            return Ok(());
        }
        // Of several the one that ends last says most.
        let reason =
            consents.iter().max_by_key(|c| c.expires).and_then(fault).unwrap_or_else(|| {
                "has no consent record; `mien consent grant --help` says how to give one".to_owned()
            });
        Err(Error::NoConsent(format!("The source `{identity}` {reason}")))
    }

    /// An identity that is enrolled.
    pub(crate) fn check_known(&self, identity: &IdentityId) -> Result<()> {
        if self.policy.sources.iter().any(|s| s.record.identity == *identity) {
            return Ok(());
        }
        Err(mien_vault::Error::SourceUnknown { id: identity.clone() }.into())
    }
}
