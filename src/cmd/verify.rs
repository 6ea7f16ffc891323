//! `mien verify`: the marks of a picture or clip, read back.

use mien_base::report::{ClipVerdict, Verdict};

use super::args::VerifyArgs;
use super::desk::{self, Desk};
use super::error::{Error, Result};
use super::out;

pub(crate) fn run(args: &VerifyArgs) -> Result<()> {
    let mut desk = Desk::open_bare(&args.run)?;
    let job = desk.next_job()?;
    let verdict = desk.worker.verify(job, &desk::input(&args.file))?;
    if args.run.json {
        out::json(&verdict)?;
    } else if !args.run.quiet {
        out::line(&words(&verdict))?;
    }
    if verdict.whole {
        return Ok(());
    }
    let name = args.file.display();
    Err(Error::NotMarked(format!("`{name}` is not marked whole: {}", verdict.reasons.join("; "))))
}

fn words(verdict: &Verdict) -> String {
    let or = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
    let what = match (verdict.altered, verdict.generated) {
        (_, Some(true)) => "faces were made (swapped or synthetic)",
        (Some(true), _) => "faces were hidden",
        (Some(false), _) => "nothing was altered",
        _ => "unknown",
    };
    let invisible = verdict.payload.as_ref().map(|payload| {
        let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
        let (job, hour) = verdict.counter.map_or((0, 0), |c| (c >> 16, c & 0xffff));
        let device = number(verdict.device);
        format!("{payload}: device {device}, job {job:04x}…, hour {hour} of 2026 on")
    });
    let gops = verdict.clip.as_ref().map(|clip| {
        let ClipVerdict { frames, gops, marked, others, .. } = clip;
        let also = if *others > 0 { format!(", another in {others}") } else { String::new() };
        format!("in {marked} of {gops} GOPs{also}; {frames} frames were looked at")
    });
    let mut rows = vec![
        ("marks", if verdict.whole { "whole" } else { "not whole" }.to_owned()),
        ("says", what.to_owned()),
        ("label", or(verdict.label.clone())),
        ("invisible", or(invisible)),
        ("AIGC", or(verdict.aigc.clone())),
    ];
    match gops {
        Some(gops) => rows.insert(4, ("payload", gops)),
        None => rows.insert(4, ("source type", or(verdict.source_type.clone()))),
    }
    let lines: Vec<String> = rows.iter().map(|(k, v)| format!("{k:<12} {v}")).collect();
    lines.join("\n")
}
