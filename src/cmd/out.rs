//! Words to the user: lines on standard output, progress on standard error, tables.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use mien_base::clock::{Clock, Mono};

use super::error::{Error, Result};

/// Prints a line on standard output.
pub(crate) fn line(text: &str) -> Result<()> {
    bytes(format!("{}\n", tame(text)).as_bytes())
}

/// Prints bytes on standard output; a reader that has gone away is no error.
pub(crate) fn bytes(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(source) if source.kind() != io::ErrorKind::BrokenPipe => Err(Error::Output { source }),
        _ => Ok(()),
    }
}

/// Prints a value as one JSON document on standard output.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> Result<()> {
    line(&serde_json::to_string_pretty(value).expect("reports hold only plain data"))
}

/// Says something on standard error; a closed standard error is nobody listening.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", tame(text));
}

/// A file's name may hold what drives a terminal: control characters are shown, not sent.
fn tame(text: &str) -> std::borrow::Cow<'_, str> {
    let wild = |c: char| c.is_control() && c != '\n';
    if !text.contains(wild) {
        return text.into();
    }
    let shown = |c: char| if wild(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect::<String>().into()
}

/// Columns with a header, padded; numbers are to be formatted by the caller.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let print = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width + 2 - cell.chars().count()));
        }
        text.truncate(text.trim_end().len());
        text
    };
    let mut lines = vec![print(&mut header.iter().copied())];
    lines.extend(rows.iter().map(|row| print(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}

/// A span as a person reads it: `8 s`, `2 min 05 s`, `1 h 03 min`.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// One line on standard error that is rewritten: done of all, rate, time left.
pub(crate) struct Progress<'a> {
    clock: &'a dyn Clock,
    start: Mono,
    last: Option<Mono>,
    all: usize,
    shown: bool,
    /// Also the frames of clips are shown.
    frames: bool,
}

/// Least time between two redraws.
const REDRAW: Duration = Duration::from_millis(100);

impl<'a> Progress<'a> {
    /// Shows itself only on a terminal, and only when there is more than one thing to do.
    pub(crate) fn new(clock: &'a dyn Clock, all: usize, quiet: bool) -> Self {
        let frames = !quiet && io::stderr().is_terminal();
        Self { clock, start: clock.mono(), last: None, all, shown: frames && all > 1, frames }
    }

    /// `done` of all are done; `name` is the one at work.
    pub(crate) fn step(&mut self, done: usize, name: &str) {
        let now = self.clock.mono();
        if !self.shown || self.last.is_some_and(|last| now.since(last) < REDRAW) {
            return;
        }
        self.last = Some(now);
        let text = progress_text(done, self.all, now.since(self.start));
        let name: String = name.chars().take(40).flat_map(char::escape_debug).collect();
        let mut err = io::stderr().lock();
        let _ = write!(err, "\r\x1b[K{text}  {name}");
        let _ = err.flush();
    }

    /// `frame` of so many are done of a clip that began with `from` of them at `start`.
    pub(crate) fn frame(
        &mut self,
        name: &str,
        (from, frame): (u64, u64),
        of: Option<u64>,
        start: Mono,
    ) {
        let now = self.clock.mono();
        if !self.frames || self.last.is_some_and(|last| now.since(last) < REDRAW) {
            return;
        }
        self.last = Some(now);
        let text = frames_text(from, frame, of, now.since(start));
        let name: String = name.chars().take(40).flat_map(char::escape_debug).collect();
        let mut err = io::stderr().lock();
        let _ = write!(err, "\r\x1b[K{text}  {name}");
        let _ = err.flush();
    }

    /// Clears the line.
    pub(crate) fn finish(&mut self) {
        if self.last.take().is_some() {
            let mut err = io::stderr().lock();
            let _ = write!(err, "\r\x1b[K");
            let _ = err.flush();
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

fn frames_text(from: u64, frame: u64, of: Option<u64>, passed: Duration) -> String {
    let mut text = match of {
        Some(of) => format!("{frame}/{of} frames"),
        None => format!("{frame} frames"),
    };
    let done = frame.saturating_sub(from);
    if done > 0 && !passed.is_zero() {
        let rate = done as f64 / passed.as_secs_f64();
        text.push_str(&format!("  {rate:.1}/s"));
        if let Some(of) = of {
            let left = Duration::from_secs_f64(of.saturating_sub(frame) as f64 / rate);
            text.push_str(&format!("  {} left", span(left)));
        }
    }
    text
}

fn progress_text(done: usize, all: usize, passed: Duration) -> String {
    let mut text = format!("{done}/{all}");
    if done > 0 && !passed.is_zero() {
        let rate = done as f64 / passed.as_secs_f64();
        let left = Duration::from_secs_f64((all - done.min(all)) as f64 / rate);
        text.push_str(&format!("  {rate:.1}/s  {} left", span(left)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_by_characters_not_bytes() {
        let rows = vec![vec!["é".into(), "1".into()], vec!["long".into(), "2".into()]];
        assert_eq!(table(&["a", "b"], &rows), "a     b\né     1\nlong  2");
    }

    #[test]
    fn a_resumed_clip_is_timed_by_the_frames_of_this_run() {
        let text = frames_text(120, 180, Some(300), Duration::from_secs(30));
        assert_eq!(text, "180/300 frames  2.0/s  1 min 00 s left");
        assert_eq!(frames_text(0, 8, None, Duration::from_secs(4)), "8 frames  2.0/s");
        assert_eq!(frames_text(8, 8, Some(9), Duration::from_secs(4)), "8/9 frames");
    }

    #[test]
    fn progress_says_rate_and_time_left() {
        let text = progress_text(10, 30, Duration::from_secs(5));
        assert_eq!(text, "10/30  2.0/s  10 s left");
        assert_eq!(progress_text(0, 30, Duration::from_secs(5)), "0/30");
        assert_eq!(span(Duration::from_secs(125)), "2 min 05 s");
    }
}
