//! Clips of `mien process` and `mien detect`: their options, their progress, words about them.

use std::path::Path;

use serde::Serialize;

use mien_base::clock::Clock as _;
use mien_base::recipe::Detect;
use mien_base::report::{ClipReport, FaceReport};
use mien_base::wire::clip::{ClipOutput, Container, Range, Rate};
use mien_daemon::files::Input;
use mien_daemon::kind::Kind;
use mien_daemon::segments;
use mien_daemon::supervise::{ClipDetectJob, ClipFinished};

use super::args::{FormatArg, ProcessArgs, RunArgs};
use super::desk::{ClipTask, Desk};
use super::error::{Error, Result};
use super::inputs::Task;
use super::out;
use super::recipe::Asked;

/// `START-END`, each in seconds, m:s or h:m:s; either may be left out.
pub(crate) fn range(text: &str) -> Result<Range> {
    let bad = || {
        let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
        Error::Usage(format!(
            "`{shown}` does not fit --range: START-END in seconds, m:s or h:m:s, such as 90-2:00"
        ))
    };
    let (start, end) = text.split_once('-').ok_or_else(bad)?;
    let point = |text: &str| match text.trim() {
        "" => Some(None),
        text => micros(text).map(Some),
    };
    let start = point(start).ok_or_else(bad)?.unwrap_or(0);
    let end = point(end).ok_or_else(bad)?;
    if end.is_some_and(|end| end <= start) {
        return Err(bad());
    }
    Ok(Range { start, end })
}

/// A time in microseconds.
fn micros(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split(':').collect();
    let (seconds, before) = parts.split_last()?;
    if before.len() > 2 {
        return None;
    }
    let digits = |text: &str| {
        let plain = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let mut total = 0;
    for part in before.iter().chain([&whole]) {
        let value = digits(part)?;
        // Only the first may be 60 or more.
        if total > 0 && value >= 60 {
            return None;
        }
        total = total * 60 + value;
    }
    let part: String = part.chars().chain(std::iter::repeat('0')).take(6).collect();
    Some(total * 1_000_000 + digits(&part)?)
}

/// Processes one clip.
#[expect(clippy::too_many_arguments, reason = "the parts of one command line")]
pub(crate) fn process(
    desk: &mut Desk,
    args: &ProcessArgs,
    input: &Input,
    kind: Kind,
    task: &Task,
    asked: &Asked,
    range: Option<Range>,
    progress: &mut out::Progress<'_>,
    alone: bool,
) -> Result<ClipFinished> {
    let container = container(input, kind, task)?;
    let rate = match (args.clip.bitrate, args.quality) {
        (Some(kbits), _) => Rate::Bitrate(kbits),
        (None, Some(quality)) => Rate::Quality(quality),
        (None, None) => Rate::AsInput,
    };
    let write = ClipOutput { container, rate, audio: !args.clip.no_audio };
    let clip = ClipTask { input, output: &task.output, write, range };
    let (clock, name) = (desk.clock.clone(), input.name());
    let (start, mut from) = (clock.mono(), None);
    let done = desk.process_clip(&clip, asked, &mut |frame, of| {
        let from = *from.get_or_insert(frame.saturating_sub(1));
        progress.frame(&name, (from, frame), of, start);
    });
    if alone {
        progress.finish();
    }
    done.map_err(|error| interrupted(error, &task.output))
}

/// Says where the work is that an error leaves.
fn interrupted(error: Error, output: &Path) -> Error {
    match segments::kept_for(output) {
        Some(folder) => {
            let why = match &error {
                Error::Daemon(mien_daemon::Error::Cancelled) => "Stopped".to_owned(),
                other => other.chain(),
            };
            Error::Interrupted { why, kind: error.kind(), folder }
        }
        None if matches!(error, Error::Daemon(mien_daemon::Error::Cancelled)) => Error::Cancelled,
        None => error,
    }
}

fn container(input: &Input, kind: Kind, task: &Task) -> Result<Container> {
    match task.format.map(FormatArg::clip) {
        Some(Some(container)) => Ok(container),
        Some(None) => {
            let text = format!("`{}` is a clip: name its output .mp4 or .y4m", input.name());
            Err(Error::Usage(text))
        }
        None if kind == Kind::RawFrames => Ok(Container::Y4m),
        None => Ok(Container::Mp4),
    }
}

/// What became of a clip, in one line.
pub(crate) fn summary(report: &ClipReport, resumed: Option<u64>) -> String {
    let mut text = format!("{} frames ({:.1} s)", report.frames, report.seconds);
    if let Some(frames) = resumed {
        text.push_str(&format!(", {frames} of them from before"));
    }
    let done = report.done.iter().map(|(done, n)| format!("{done} {n} times"));
    let done: Vec<String> = done.collect();
    match report.tracks {
        0 => text.push_str("; no face"),
        n => text.push_str(&format!("; {n} tracks of faces: {}", done.join(", "))),
    }
    if report.covered > 0 {
        text.push_str(&format!("; {} frames covered whole", report.covered));
    }
    for (reason, n) in &report.reasons {
        text.push_str(&format!("; {reason} ({n} times)"));
    }
    for (who, frames) in &report.identities {
        text.push_str(&format!("; {who} in {frames} frames"));
    }
    let marks = &report.marks;
    text.push_str(&format!("; invisible mark in {} of {} GOPs", marks.marked, marks.gops));
    let cpu: f64 = report.stages.iter().map(|stage| stage.cpu_ms).sum();
    text.push_str(&format!("; {:.0} ms of CPU a frame", cpu / report.frames.max(1) as f64));
    for reason in &marks.reasons {
        text.push_str(&format!("; {reason}"));
    }
    text
}

/// One line of `mien detect` on a clip.
#[derive(Serialize)]
struct Line<'a> {
    frame: u64,
    seconds: f64,
    faces: Vec<Face<'a>>,
}

#[derive(Serialize)]
struct Face<'a> {
    track: u32,
    #[serde(flatten)]
    face: &'a FaceReport,
}

/// Prints the faces of each frame, one line of JSON a frame.
pub(crate) fn detect(
    desk: &mut Desk,
    run: &RunArgs,
    detect: &Detect,
    input: &Input,
    range: Option<Range>,
) -> Result<()> {
    let (job, wall) = (desk.next_job()?, desk.wall);
    let mut failed = None;
    let job = ClipDetectJob { job, detect, input, range, wall };
    let done = desk.worker.detect_clip(&job, &mut |found| {
        let faces = found.tracks.iter().zip(&found.faces);
        let line = Line {
            frame: found.frame,
            seconds: found.at as f64 / 1e6,
            faces: faces.map(|(track, face)| Face { track: *track, face }).collect(),
        };
        if run.quiet {
            return true;
        }
        let text = serde_json::to_string(&line).expect("reports hold only plain data");
        failed = out::line(&text).err();
        failed.is_none()
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(done.map(drop)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_in_seconds_minutes_and_hours() {
        let of = |text: &str| range(text).map(|r| (r.start, r.end)).ok();
        assert_eq!(of("90-2:00"), Some((90_000_000, Some(120_000_000))));
        assert_eq!(of("0.04-0.5"), Some((40_000, Some(500_000))));
        assert_eq!(of("1:01:01.5-"), Some((3_661_500_000, None)));
        assert_eq!(of("-10"), Some((0, Some(10_000_000))));
        for bad in ["10", "5-5", "2:00-1:00", "1:75-2:00", "a-b", "1:1:1:1-", "-1-2", "1e9-", "--"]
        {
            assert!(of(bad).is_none(), "{bad}");
        }
    }
}
