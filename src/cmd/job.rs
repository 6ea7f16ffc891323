//! `mien job`: orders, lists, watches and steers jobs of this machine.

use std::fs;
use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::{Clock as _, SystemClock};
use mien_base::error::ErrorKind;
use mien_base::report::Failure;
use mien_daemon::contract::{JOB, JobState, ROOT, State, Topics};
use mien_daemon::jobs::{HomeTrust, Jobs, Parts, Settings, verbs};
use mien_daemon::service::{self, Lock};
use mien_daemon::store::Store;
use mien_vault::random::SystemRandom;
use mien_vault::{Home, digest};
use serde_json::{Map, Value, json};

use super::error::{Error, Result};
use super::job_args::{JobArgs, JobCommand, JobListArgs, JobOut, SubmitArgs};
use super::work::{Places, Work};
use super::{daemon, out, record};

pub(crate) fn run(command: &JobCommand) -> Result<()> {
    match command {
        JobCommand::Submit(args) => submit(args),
        JobCommand::List(args) => list(args),
        JobCommand::Show(args) => show(args),
        JobCommand::Cancel(args) => steer(args, "job.cancel"),
        JobCommand::Pause(args) => steer(args, "job.pause"),
        JobCommand::Resume(args) => steer(args, "job.resume"),
        JobCommand::Watch(args) => {
            let line = Line::open(&args.how)?;
            watch(&line, &args.id, &args.how)
        }
    }
}

/// Whom to ask: the daemon when one runs, else the jobs of this home.
enum Line {
    Daemon(PathBuf),
    /// They run here, and nobody else runs them meanwhile.
    Here(Box<Jobs>, #[expect(dead_code, reason = "held, not read")] Lock),
    /// They are only looked at.
    Read(Box<Store>),
}

impl Line {
    /// The daemon, when there is one.
    fn daemon(how: &JobOut) -> Result<Option<Self>> {
        let socket = daemon::socket(how.socket.as_ref())?;
        let runs = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        Ok((how.socket.is_some() || runs()).then_some(Self::Daemon(socket)))
    }

    /// To look at jobs, or to steer those of a daemon.
    fn open(how: &JobOut) -> Result<Self> {
        if let Some(daemon) = Self::daemon(how)? {
            return Ok(daemon);
        }
        let clock = Arc::new(SystemClock::start());
        Ok(Self::Read(Box::new(record::open(&Home::from_env()?, clock, true)?)))
    }

    /// To do jobs, which may read and write in these folders of the user's when they run here.
    fn work(how: &JobOut, folders: &[PathBuf]) -> Result<Self> {
        if let Some(daemon) = Self::daemon(how)? {
            return Ok(daemon);
        }
        let home = Home::from_env()?;
        home.create()?;
        let lock = Lock::take(home.data())?;
        let clock = Arc::new(SystemClock::start());
        let store = Arc::new(record::open(&home, clock.clone(), true)?);
        let topics = Topics::new(ROOT, "here").expect("a plain name");
        let mut settings = Settings::new(topics, boot());
        settings.told = false;
        let places = Places { inputs: folders.to_vec(), outputs: folders.to_vec() };
        let work = Work::new(&home, store.clone(), places, None).unsandboxed(how.allow_unsandboxed);
        let parts = Parts {
            store,
            clock,
            executor: Arc::new(work),
            trust: Box::new(HomeTrust(home)),
            random: Box::new(SystemRandom),
        };
        Ok(Self::Here(Box::new(Jobs::open(settings, parts)?), lock))
    }

    fn device(&self) -> Result<String> {
        let answer = match self {
            Self::Daemon(_) => self.ask("job.device", json!({}))?,
            Self::Here(..) | Self::Read(_) => json!({ "device": "here" }),
        };
        let device = answer.get("device").and_then(Value::as_str).unwrap_or_default();
        Ok(device.to_owned())
    }

    fn ask(&self, verb: &str, args: Value) -> Result<Value> {
        match self {
            Self::Daemon(socket) => Ok(service::ask(socket, verb, args)?),
            Self::Here(jobs, _) => {
                verbs::answer(jobs, &user(), verb, &args)?.map_err(|said| refused(&said))
            }
            Self::Read(store) => match verbs::read(store, verb, &args)? {
                Some(said) => said.map_err(|said| refused(&said)),
                None => {
                    let text = "No daemon runs, so no job does; `mien run` starts one";
                    Err(Error::Usage(text.to_owned()))
                }
            },
        }
    }
}

/// Changes when the machine starts.
pub(crate) fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot.map_or_else(|_| "unknown".to_owned(), |boot| boot.trim().to_owned())
}

fn user() -> String {
    format!("uid:{}", rustix::process::getuid().as_raw())
}

/// A refusal as a user sees it.
fn refused(refusal: &mien_daemon::contract::Refusal) -> Error {
    Error::Failed(Failure { kind: ErrorKind::Usage, message: refusal.to_string() })
}

fn usage(option: &str, why: impl std::fmt::Display) -> Error {
    Error::Usage(format!("{option}: {why}"))
}

/// An artifact of a file, with its size and digest.
fn artifact(path: &Path) -> Result<Value> {
    let failed = |source| Error::File { what: "Can't read", path: path.to_owned(), source };
    let real = fs::canonicalize(path).map_err(failed)?;
    let file = fs::File::open(&real).map_err(failed)?;
    let (sha256, size) = digest::of_reader(file, u64::MAX).map_err(failed)?;
    Ok(json!({ "uri": format!("file:{}", real.display()), "sha256": sha256, "size": size }))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::File {
        what: "Can't find",
        path: path.to_owned(),
        source,
    })
}

fn parse(option: &str, text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| usage(option, error))
}

fn params(args: &SubmitArgs) -> Result<Map<String, Value>> {
    let given = args.params.as_deref().map_or(Ok(json!({})), |text| parse("--params", text))?;
    let Value::Object(mut params) = given else {
        return Err(usage("--params", "must be a table"));
    };
    if let Some(input) = &args.input {
        params.insert("input".to_owned(), artifact(input)?);
    }
    if let Some(output) = &args.output {
        let uri = format!("file:{}", absolute(output)?.display());
        params.insert("output".to_owned(), json!({ "uri": uri }));
    }
    let media = ["image.process", "clip.process"].contains(&args.kind.as_str());
    match &args.rules {
        Some(rules) => drop(params.insert("rules".to_owned(), parse("--rules", rules)?)),
        None if media && !params.contains_key("rules") => {
            let cover = json!([{ "who": "anyone", "then": { "do": "anonymise", "how": "solid" } }]);
            params.insert("rules".to_owned(), cover);
        }
        None => {}
    }
    Ok(params)
}

/// An id that nobody else has.
pub(crate) fn random_id(prefix: &str) -> Result<String> {
    let mut bytes = [0; 10];
    fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(Error::random)?;
    Ok(format!("{prefix}-{}", mien_vault::text::hex(&bytes)))
}

fn submit(args: &SubmitArgs) -> Result<()> {
    let params = params(args)?;
    let folders = [&args.input, &args.output].into_iter().flatten();
    let folders = folders
        .map(|path| {
            let path = fs::canonicalize(path).or_else(|_| std::path::absolute(path));
            let path = path.map_err(|source| Error::File {
                what: "Can't find",
                path: PathBuf::new(),
                source,
            })?;
            Ok(path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned))
        })
        .collect::<Result<Vec<_>>>()?;
    let line = Line::work(&args.how, &folders)?;
    let now = SystemClock::start().wall().0.saturating_mul(1000);
    let id = args.id.clone().map_or_else(|| random_id("job"), Ok)?;
    let mut document = json!({
        "schema": JOB, "id": id, "kind": args.kind, "issuer": user(), "issued_at": now,
        "expires_at": now + args.expires.saturating_mul(1000), "qos": args.qos,
        "priority": args.priority, "params": params, "audience": line.device()?, "seq": 1,
    });
    let timeout = args.timeout.or((args.kind == "clip.process").then_some(86_400));
    if let Some(seconds) = timeout {
        document["timeout_s"] = json!(seconds);
    }
    if let Some(seconds) = args.stall {
        document["stall_s"] = json!(seconds);
    }
    let answer = line.ask("job.submit", json!({ "document": document }))?;
    let state = state(&answer)?;
    if state.state == State::Rejected {
        return end(&state, &args.how);
    }
    if args.no_wait && matches!(line, Line::Daemon(_)) {
        return tell(&state, &args.how);
    }
    watch(&line, &id, &args.how)
}

fn state(answer: &Value) -> Result<JobState> {
    let job = answer.get("job").cloned().unwrap_or_default();
    serde_json::from_value(job).map_err(|error| usage("The answer", error))
}

fn tell(state: &JobState, how: &JobOut) -> Result<()> {
    if how.json { out::json(state) } else { out::line(&words(state)) }
}

pub(crate) fn words(state: &JobState) -> String {
    let mut text = format!("{}  {}  {}", state.id, state.kind, state.state);
    if let Some(progress) = &state.progress {
        text.push_str(&format!("  {}", progress.step));
        if let Some(permille) = progress.permille {
            text.push_str(&format!(" {:.0} %", f64::from(permille) / 10.0));
        }
    }
    if let Some(reason) = &state.reason {
        text.push_str(&format!("  {reason}"));
    }
    if let Some(detail) = &state.detail {
        text.push_str(&format!(": {detail}"));
    }
    text
}

/// Tells how a job ended; a job that did not succeed is an error.
fn end(state: &JobState, how: &JobOut) -> Result<()> {
    if state.state == State::Succeeded {
        return tell(state, how);
    }
    if how.json {
        out::json(state)?;
    }
    let kind = match state.state {
        State::Cancelled | State::Superseded => ErrorKind::Cancelled,
        State::TimedOut | State::Expired => ErrorKind::Late,
        State::Rejected => ErrorKind::Usage,
        _ => ErrorKind::Internal,
    };
    Err(Error::Failed(Failure { kind, message: words(state) }))
}

/// Follows a job to its end.
fn watch(line: &Line, id: &str, how: &JobOut) -> Result<()> {
    let (mut seen, mut shown) = (0, String::new());
    let live = !how.json && std::io::stderr().is_terminal();
    let state = state(&line.ask("job.show", json!({ "id": id }))?)?;
    if state.state.is_end() {
        return end(&state, how);
    }
    loop {
        let args = json!({ "id": id, "seen": seen, "wait_s": 5 });
        let answer = line.ask("job.watch", args)?;
        seen = answer.get("seen").and_then(Value::as_u64).unwrap_or(0);
        let state = self::state(&answer)?;
        if state.state.is_end() {
            return end(&state, how);
        }
        let words = words(&state);
        if live && words != shown {
            out::note(&words);
            shown = words;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn list(args: &JobListArgs) -> Result<()> {
    let line = Line::open(&args.how)?;
    let answer = line.ask("job.list", json!({ "open": args.open, "most": args.most }))?;
    if args.how.json {
        return out::json(&answer);
    }
    let jobs: Vec<JobState> =
        serde_json::from_value(answer.get("jobs").cloned().unwrap_or_default())
            .map_err(|error| usage("The answer", error))?;
    if jobs.is_empty() {
        return out::line("no job");
    }
    let rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            vec![
                job.id.clone(),
                job.kind.to_string(),
                job.state.to_string(),
                job.attempt.to_string(),
                mien_base::clock::Wall(job.at / 1000).to_string(),
                job.reason.map_or_else(String::new, |reason| reason.to_string()),
            ]
        })
        .collect();
    out::line(&out::table(&["job", "kind", "state", "tries", "since", "reason"], &rows))
}

fn show(args: &JobArgs) -> Result<()> {
    let line = Line::open(&args.how)?;
    let answer = line.ask("job.show", json!({ "id": args.id }))?;
    out::json(&answer)
}

fn steer(args: &JobArgs, verb: &str) -> Result<()> {
    let line = Line::open(&args.how)?;
    let answer = line.ask(verb, json!({ "id": args.id }))?;
    tell(&state(&answer)?, &args.how)
}
