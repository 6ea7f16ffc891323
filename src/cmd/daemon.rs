//! `mien status`, `mien health`, `mien reload`: asks the running daemon.

use std::path::PathBuf;

use serde_json::Value;

use mien_daemon::service::ask;
use mien_vault::Home;

use super::args::AskArgs;
use super::error::{Error, Result};
use super::out;

/// Where a daemon of the system listens.
const SYSTEM: &str = "/run/mien/control.sock";

fn asked(args: &AskArgs, verb: &str) -> Result<Value> {
    Ok(ask(&socket(args.socket.as_ref())?, verb, Value::Null)?)
}

/// The socket that is meant.
pub(crate) fn socket(given: Option<&PathBuf>) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.clone());
    }
    let own = Home::from_env()?.data().join("control.sock");
    let system = PathBuf::from(SYSTEM);
    Ok(if !own.exists() && system.exists() { system } else { own })
}

pub(crate) fn reload(args: &AskArgs) -> Result<()> {
    let done = asked(args, "reload")?;
    if args.json {
        return out::json(&done);
    }
    let changes = done["changes"].as_array().map_or(&[][..], Vec::as_slice);
    if changes.is_empty() {
        return out::line("nothing to change");
    }
    for change in changes {
        let text = match change {
            Value::Object(one) => {
                one.iter().next().map(|(did, what)| format!("{did} {}", word(what)))
            }
            other => Some(format!("changed {}", word(other))),
        };
        out::line(&text.unwrap_or_default())?;
    }
    Ok(())
}

pub(crate) fn health(args: &AskArgs) -> Result<()> {
    let health = asked(args, "health")?;
    let reasons = health["reasons"].as_array().map_or(&[][..], Vec::as_slice);
    let healthy = health["healthy"] == true;
    if args.json {
        out::json(&health)?;
    } else if healthy {
        out::line("healthy")?;
    } else {
        reasons.iter().try_for_each(|reason| out::line(&word(reason)))?;
    }
    if healthy {
        return Ok(());
    }
    Err(Error::Check(format!("not healthy, for {} reasons", reasons.len())))
}

pub(crate) fn status(args: &AskArgs) -> Result<()> {
    let status = asked(args, "status")?;
    if args.json {
        return out::json(&status);
    }
    out::line(&head(&status))?;
    let pipelines = status["pipelines"].as_array().map_or(&[][..], Vec::as_slice);
    if !pipelines.is_empty() {
        let header = [
            "pipeline",
            "state",
            "fps",
            "delivers",
            "latency p50/p95/p99",
            "queue",
            "faces",
            "held",
            "left",
            "dropped",
            "worker",
        ];
        let rows: Vec<Vec<String>> = pipelines.iter().map(row).collect();
        out::line("")?;
        out::line(&out::table(&header, &rows))?;
        stages(pipelines)?;
        outputs(pipelines)?;
    }
    if let Some(parts) = status["parts"].as_object() {
        for (name, part) in parts {
            out::line(&format!("\n{name}: {}", flat(part)))?;
        }
    }
    let reasons = status["health"]["reasons"].as_array().map_or(&[][..], Vec::as_slice);
    for reason in reasons {
        out::line(&format!("\nnot healthy: {}", word(reason)))?;
    }
    Ok(())
}

fn head(status: &Value) -> String {
    let machine = &status["machine"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let up = out::span(std::time::Duration::from_secs(number(&status["uptime_s"])));
    let healthy = if status["health"]["healthy"] == true { "healthy" } else { "NOT HEALTHY" };
    let mut lines = vec![
        format!(
            "mien {} on {}: {healthy}, up {up}, since {}",
            word(&status["version"]),
            word(&status["device"]),
            word(&status["since"])
        ),
        format!(
            "configuration {} ({}), applied {} times{}",
            word(&status["config"]),
            word(&status["config_digest"]).chars().take(12).collect::<String>(),
            number(&status["reloads"]) + 1,
            status["profile"].as_str().map_or(String::new(), |name| format!(", profile {name}"))
        ),
        format!(
            "pid {}, {} MiB, {} descriptors, {} threads",
            number(&machine["pid"]),
            number(&machine["rss_kib"]) >> 10,
            number(&machine["fds"]),
            number(&machine["threads"])
        ),
    ];
    for disk in machine["disks"].as_array().into_iter().flatten() {
        let (free, keep) = (number(&disk["free"]) >> 20, number(&disk["keep"]) >> 20);
        let folder = word(&disk["folder"]);
        lines.push(format!("disk of {folder}: {free} MiB free, {keep} MiB are to stay free"));
    }
    let zones = machine["temperatures"].as_array().into_iter().flatten();
    let zones: Vec<String> = zones
        .map(|zone| format!("{} {:.0} °C", word(&zone[0]), zone[1].as_f64().unwrap_or(0.0)))
        .collect();
    if !zones.is_empty() {
        lines.push(zones.join(", "));
    }
    lines.join("\n")
}

fn row(pipeline: &Value) -> Vec<String> {
    let stats = &pipeline["stats"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let delivers = &pipeline["delivers"];
    let delivers = if delivers.is_null() {
        "-".to_owned()
    } else {
        let (pixel, rate) = (word(&delivers["pixel"]), number(&delivers["millihertz"]));
        let (w, h) = (number(&delivers["size"][0]), number(&delivers["size"][1]));
        format!("{pixel} {w}x{h} {:.1}/s", rate as f64 / 1000.0)
    };
    let whole = stats["lags"].as_array().into_iter().flatten().next_back();
    let latency = whole.map_or("-".to_owned(), |lag| {
        let ms = |key: &str| number(&lag[key]) as f64 / 1000.0;
        format!("{:.1}/{:.1}/{:.1} ms", ms("p50"), ms("p95"), ms("p99"))
    });
    let drops: u64 =
        stats["drops"].as_array().into_iter().flatten().map(|drop| number(&drop[1])).sum();
    let worker = &pipeline["worker"];
    let worker = if worker.is_null() {
        format!("none, {} lost", number(&pipeline["workers_lost"]))
    } else {
        format!(
            "{} {} MiB, {} lost",
            number(&worker["pid"]),
            number(&worker["rss_kib"]) >> 10,
            number(&pipeline["workers_lost"])
        )
    };
    vec![
        word(&pipeline["name"]),
        word(&pipeline["state"]),
        format!("{:.1}", pipeline["fps"].as_f64().unwrap_or(0.0)),
        delivers,
        latency,
        format!("{:.1} ms", number(&stats["queue_us"]) as f64 / 1000.0),
        number(&stats["faces"]).to_string(),
        number(&stats["masks"]).to_string(),
        number(&pipeline["moved"]).to_string(),
        drops.to_string(),
        worker,
    ]
}

/// What each stage takes, and why frames were dropped or covered.
fn stages(pipelines: &[Value]) -> Result<()> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        let stats = &pipeline["stats"];
        for lag in stats["lags"].as_array().into_iter().flatten() {
            let ms = |key: &str| format!("{:.2}", number(&lag[key]) as f64 / 1000.0);
            let (name, stage) = (word(&pipeline["name"]), word(&lag["stage"]));
            rows.push(vec![name, stage, ms("p50"), ms("p95"), ms("p99")]);
        }
    }
    if !rows.is_empty() {
        out::line("")?;
        out::line(&out::table(&["pipeline", "stage", "p50 ms", "p95 ms", "p99 ms"], &rows))?;
    }
    let mut rows = Vec::new();
    for pipeline in pipelines {
        let stats = &pipeline["stats"];
        for (what, list) in [("dropped", &stats["drops"]), ("covered", &stats["reasons"])] {
            for one in list.as_array().into_iter().flatten() {
                let (name, why) = (word(&pipeline["name"]), word(&one[0]));
                rows.push(vec![name, what.to_owned(), why, number(&one[1]).to_string()]);
            }
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    out::line("")?;
    out::line(&out::table(&["pipeline", "frames", "because", "times"], &rows))
}

fn outputs(pipelines: &[Value]) -> Result<()> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        for output in pipeline["outputs"].as_array().into_iter().flatten() {
            rows.push(vec![
                word(&output["name"]),
                word(&output["kind"]),
                number(&output["delivered"]).to_string(),
                format!("{:.1} MiB", number(&output["bytes"]) as f64 / f64::from(1 << 20)),
                output["fault"].as_str().unwrap_or("").to_owned(),
            ]);
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    out::line("")?;
    out::line(&out::table(&["output", "kind", "delivered", "bytes", "fault"], &rows))
}

/// A text without its quotes, anything else as it is written.
fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The figures of a part on one line.
fn flat(part: &Value) -> String {
    let Some(table) = part.as_object() else { return word(part) };
    let items: Vec<String> =
        table.iter().map(|(key, value)| format!("{key} {}", word(value))).collect();
    items.join(", ")
}
