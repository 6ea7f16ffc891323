//! `mien camera`: what is there, what it offers, what it really delivers.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mien_base::clock::{Clock as _, SystemClock};
use mien_base::error::ErrorKind;
use mien_base::id::JobId;
use mien_base::report::Failure;
use mien_base::wire::live::{Delivers, LiveStats, Mode, Watch};
use mien_base::wire::{Event, Request};
use mien_daemon::config::{self, CameraDevice};
use mien_daemon::live::{self, Found};
use mien_daemon::supervise::{Supervisor, WorkerConfig};
use mien_vault::{Home, ModelStore};
use mien_worker::camera::v4l2::probe::{self, Offer};
use mien_worker::camera::v4l2::{ControlInfo, Driver as _, Node, name};
use serde_json::{Value, json};

use super::desk;
use super::error::{Error, Result};
use super::out;
use super::run_args::{CameraArgs, CameraCommand};

/// How long a camera is watched to be probed.
const PROBED: u64 = 3;
const TICK: Duration = Duration::from_millis(50);
/// How long a worker may take to end.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn run(command: &CameraCommand) -> Result<()> {
    match command {
        CameraCommand::List { json } => list(*json),
        CameraCommand::Probe(args) => probe(args),
        CameraCommand::Watch { camera, seconds } => watch(camera, *seconds),
    }
}

/// An error that says what is not there.
fn away(message: String) -> Error {
    Error::Failed(Failure { kind: ErrorKind::Unreachable, message })
}

/// What a video device says of itself, where it captures.
fn captures(found: &Found) -> Option<(Node, String, String)> {
    let open = live::find(&CameraDevice::Node(found.node.clone()), &|_| None).ok()??;
    let mut node = Node::new(open).ok()?;
    let card = node.card().ok()?;
    card.captures()?;
    Some((node, card.driver, card.bus))
}

fn list(as_json: bool) -> Result<()> {
    let (mut rows, mut documents) = (Vec::new(), Vec::new());
    for found in live::list() {
        let Some((_, driver, bus)) = captures(&found) else { continue };
        let node = found.node.display().to_string();
        // What finds it again under another number comes first.
        let known = [
            found.by_id.as_ref().map(|name| format!("by-id:{name}")),
            found.serial.as_ref().map(|text| format!("serial:{text}")),
            found.by_path.as_ref().map(|name| format!("by-path:{name}")),
            Some(format!("bus:{bus}")),
        ];
        let best = known.iter().flatten().next().cloned().unwrap_or_default();
        documents.push(json!({
            "node": node,
            "name": found.name,
            "driver": driver,
            "bus": bus,
            "by_id": found.by_id,
            "by_path": found.by_path,
            "serial": found.serial,
            "device": best,
        }));
        rows.push(vec![node, found.name, driver, best]);
    }
    if as_json {
        out::json(&documents)?;
    } else if !rows.is_empty() {
        out::line(&out::table(&["node", "name", "driver", "device = (for mien.toml)"], &rows))?;
    }
    if rows.is_empty() {
        let why = "No camera is there; plug one in, or write `file:CLIP` or `pattern` in its place";
        return Err(away(why.to_owned()));
    }
    Ok(())
}

/// The camera that the words mean.
fn asked(args: &CameraArgs) -> Result<config::Camera> {
    let device = CameraDevice::parse(&args.device).ok_or_else(|| {
        Error::Usage(format!("`{}` is no camera; allowed are {}", args.device, config::DEVICE))
    })?;
    let size = args.size.as_deref().map(|text| {
        let sides =
            text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
        sides.ok_or_else(|| Error::Usage(format!("`{text}` is no size; write 640x480")))
    });
    let device = match device {
        CameraDevice::File(path) => {
            let absolute = std::path::absolute(&path);
            CameraDevice::File(absolute.unwrap_or_else(|_| PathBuf::from(&path)))
        }
        other => other,
    };
    Ok(config::Camera {
        name: "camera".to_owned(),
        device,
        size: size.transpose()?,
        fps: args.fps,
        format: None,
        timeout: Duration::from_secs(2),
        exposure: None,
        power_line: None,
    })
}

fn open(camera: &config::Camera) -> Result<Option<OwnedFd>> {
    let bus = |fd: std::os::fd::BorrowedFd<'_>| {
        let own = fd.try_clone_to_owned().ok()?;
        Node::new(own).ok()?.card().ok().map(|card| card.bus)
    };
    Ok(live::find(&camera.device, &bus)?)
}

fn probe(args: &CameraArgs) -> Result<()> {
    let camera = asked(args)?;
    let opened = open(&camera)?;
    let mut document = json!({ "device": camera.device.to_string() });
    let is_node = !matches!(camera.device, CameraDevice::File(_) | CameraDevice::Pattern);
    if let Some(fd) = opened.as_ref().filter(|_| is_node) {
        offered(fd, &camera, &mut document)?;
    }
    let mut last: Option<(Delivers, LiveStats)> = None;
    let end = measure(&camera, opened, args, Some(PROBED), &mut |delivers, stats| {
        last = Some((delivers.clone(), stats.clone()));
        Ok(())
    });
    if let Some((delivers, stats)) = &last {
        document["delivers"] = serde_json::to_value(delivers).unwrap_or(Value::Null);
        document["measured"] = measured(delivers, stats);
    }
    if args.json {
        out::json(&document)?;
    } else {
        shown(&document)?;
    }
    end?;
    match last {
        Some((_, stats)) if stats.captured > 0 => Ok(()),
        _ => Err(away("The camera delivered no frame".to_owned())),
    }
}

/// What a V4L2 camera says that it can.
fn offered(fd: &OwnedFd, camera: &config::Camera, document: &mut Value) -> Result<()> {
    let broken = |why: String| away(format!("`{}` is no camera: {why}", camera.device));
    let own = fd.try_clone().map_err(|e| broken(e.to_string()))?;
    let mut node = Node::new(own).map_err(|e| broken(e.to_string()))?;
    let card = node.card().map_err(|e| broken(e.to_string()))?;
    let kind = card.captures().ok_or_else(|| broken("it does not capture".to_owned()))?;
    let millihertz = camera.fps.map(|fps| (fps * 1000.0) as u32);
    let mode = Mode { pixel: None, size: camera.size, millihertz };
    let offers = probe::offers(&mut node, kind, &mode).map_err(|e| broken(e.to_string()))?;
    let controls = probe::controls(&mut node).map_err(|e| broken(e.to_string()))?;
    let chosen = probe::choose(&offers, &mode);
    let one = |offer: &Offer| {
        json!({
            "format": name(offer.fourcc),
            "size": offer.size,
            "fps": f64::from(offer.millihertz) / 1000.0,
            "read": probe::pixel(offer.fourcc).is_some(),
        })
    };
    let control = |control: &ControlInfo| {
        json!({
            "id": control.id,
            "name": control.name,
            "least": control.least,
            "most": control.most,
            "default": control.default,
        })
    };
    document["card"] = card.card.into();
    document["driver"] = card.driver.into();
    document["bus"] = card.bus.into();
    document["offers"] = offers.iter().map(one).collect();
    document["chosen"] = chosen.as_ref().map_or(Value::Null, one);
    document["controls"] =
        controls.iter().filter(|control| !control.disabled).map(control).collect();
    Ok(())
}

/// Figures in words that last: rates a second, times in milliseconds.
fn measured(delivers: &Delivers, stats: &LiveStats) -> Value {
    let lag = |stage: &str| stats.lags.iter().find(|lag| lag.stage == stage);
    let ms = |micros: u64| micros as f64 / 1000.0;
    let interval = lag("interval").filter(|lag| lag.count > 0);
    let nominal = 1e6 / f64::from(delivers.millihertz.max(1));
    let lost: u64 = stats.drops.iter().map(|(_, n)| n).sum();
    json!({
        "frames": stats.captured,
        "fps": interval.map(|lag| 1e6 / lag.p50.max(1) as f64),
        "interval_ms": interval.map(|lag| [ms(lag.p50), ms(lag.p95), ms(lag.p99)]),
        "jitter_ms": interval.map(|lag| (ms(lag.p95) - nominal).abs()),
        "driver_ms": lag("driver").map(|lag| [ms(lag.p50), ms(lag.p95), ms(lag.p99)]),
        "left_out": lost,
        "drops": stats.drops,
        "faults": stats.reasons,
    })
}

fn shown(document: &Value) -> Result<()> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    out::line(&format!("camera {}", text(&document["device"])))?;
    if document["card"].is_string() {
        let [card, driver, bus] = ["card", "driver", "bus"].map(|key| text(&document[key]));
        out::line(&format!("{card}, driver {driver}, at bus:{bus}"))?;
        let rows: Vec<Vec<String>> = document["offers"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|offer| {
                let is_chosen = *offer == document["chosen"];
                let note = if is_chosen {
                    "chosen"
                } else if offer["read"] == true {
                    ""
                } else {
                    "not read"
                };
                vec![
                    text(&offer["format"]),
                    format!("{}x{}", offer["size"][0], offer["size"][1]),
                    text(&offer["fps"]),
                    note.to_owned(),
                ]
            })
            .collect();
        out::line(&out::table(&["format", "size", "fps", ""], &rows))?;
        for control in document["controls"].as_array().into_iter().flatten() {
            let name = text(&control["name"]);
            let range = format!("{} to {}", control["least"], control["most"]);
            out::line(&format!("{name}: {range}, usually {}", control["default"]))?;
        }
    }
    if document["delivers"].is_object() {
        out::line(&line(&document["delivers"], &document["measured"]))?;
    }
    Ok(())
}

/// Figures on one line.
fn line(delivers: &Value, measured: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let (pixel, size) = (delivers["pixel"].as_str().unwrap_or(""), &delivers["size"]);
    let interval = &measured["interval_ms"];
    let mut text = format!(
        "{pixel} {}x{}: {} frames, {:.1} a second of {:.1}, apart p50 {:.1} p95 {:.1} p99 {:.1} ms, \
         {} left out",
        size[0],
        size[1],
        measured["frames"],
        number(&measured["fps"]),
        number(&delivers["millihertz"]) / 1000.0,
        number(&interval[0]),
        number(&interval[1]),
        number(&interval[2]),
        measured["left_out"],
    );
    for list in ["drops", "faults"] {
        for one in measured[list].as_array().into_iter().flatten() {
            text.push_str(&format!("; {} {}", one[1], one[0].as_str().unwrap_or("")));
        }
    }
    text
}

fn watch(args: &CameraArgs, seconds: Option<u64>) -> Result<()> {
    let camera = asked(args)?;
    let opened = open(&camera)?;
    let mut frames = 0;
    measure(&camera, opened, args, seconds, &mut |delivers, stats| {
        frames = stats.captured;
        let found = measured(delivers, stats);
        if args.json {
            let text = serde_json::to_string(&found).unwrap_or_default();
            out::line(&text)
        } else {
            out::line(&line(&serde_json::to_value(delivers).unwrap_or(Value::Null), &found))
        }
    })?;
    if frames == 0 {
        return Err(away("The camera delivered no frame".to_owned()));
    }
    Ok(())
}

/// Lets a worker watch a camera for so long, or until Ctrl-C; `tell` hears about once a second.
fn measure(
    camera: &config::Camera,
    opened: Option<OwnedFd>,
    args: &CameraArgs,
    seconds: Option<u64>,
    tell: &mut dyn FnMut(&Delivers, &LiveStats) -> Result<()>,
) -> Result<()> {
    let clock = Arc::new(SystemClock::start());
    let mut config = WorkerConfig::this_program()?;
    config.unsandboxed = args.allow_unsandboxed;
    let models = Box::new(ModelStore::new(&Home::from_env()?, clock.clone()));
    let mut worker = Supervisor::start(config, models, clock.clone())?;
    let stop = Arc::new(AtomicBool::new(false));
    desk::stop_on_signal(&stop)?;
    let job = JobId([0; 16]);
    worker.watch_camera(Watch { job, camera: live::capture(camera) }, opened.as_ref())?;
    drop(opened);
    let (mut delivers, mut began, mut ending) = (None, clock.mono(), None);
    loop {
        let over = seconds.is_some_and(|most| {
            delivers.is_some() && clock.mono().since(began) >= Duration::from_secs(most)
        });
        if ending.is_none() && (over || stop.load(Ordering::Relaxed)) {
            worker.live_say(&Request::Cancel { job }, &[])?;
            ending = Some(clock.mono());
        }
        if ending.is_some_and(|since| clock.mono().since(since) > GRACE) {
            return Ok(());
        }
        let event = match worker.live_next(TICK) {
            Err(error) if ending.is_some() && error.kind() == ErrorKind::Cancelled => return Ok(()),
            other => other?,
        };
        match event {
            Some(Event::LiveBegan { delivers: found, .. }) => {
                (delivers, began) = (Some(found), clock.mono());
            }
            Some(Event::LiveStats { stats, .. }) => {
                if let Some(delivers) = &delivers {
                    tell(delivers, &stats)?;
                }
            }
            Some(Event::LiveEnded { stats, .. }) => {
                if let Some(delivers) = &delivers {
                    tell(delivers, &stats)?;
                }
                return Ok(());
            }
            _ => {}
        }
    }
}
