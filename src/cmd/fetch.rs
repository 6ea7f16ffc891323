//! Words for what `vault::fetch` does: steps and bytes on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mien_base::clock::SystemClock;
use mien_vault::Home;
use mien_vault::catalog::Group;
use mien_vault::fetch::{self, Event, Keep, Outcome, Selection};
use mien_vault::install::Packages;

use super::deeds::Deeds;
use super::error::Result;
use super::out;

/// Shows events and stops at Ctrl-C.
#[derive(Debug)]
pub(crate) struct Fetcher {
    stop: Arc<AtomicBool>,
    quiet: bool,
    live: bool,
    open: bool,
}

impl Fetcher {
    /// Catches Ctrl-C: what was fetched so far is kept for the next try.
    pub(crate) fn new(quiet: bool) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        super::desk::stop_on_signal(&stop)?;
        Ok(Self { stop, quiet, live: io::stderr().is_terminal(), open: false })
    }

    /// Gets models: sealed for this machine, or plain into a folder.
    pub(crate) fn models(
        &mut self,
        home: &Home,
        wanted: Selection<'_>,
        plain: Option<&Path>,
    ) -> Result<Outcome> {
        let mut audit = Deeds::open(home);
        let packages = Packages::new(home, Arc::new(SystemClock::start()));
        let mut keep = match plain {
            Some(folder) => Keep::Plain(folder),
            None => Keep::Sealed(&packages, &mut audit),
        };
        Ok(fetch::models(home, wanted, &mut keep, &mut |event| self.hear(event))?)
    }

    /// Gets pictures.
    pub(crate) fn pictures(
        &mut self,
        home: &Home,
        group: Group,
        folder: Option<&Path>,
    ) -> Result<Outcome> {
        Ok(fetch::pictures(home, group, folder, &mut |event| self.hear(event))?)
    }

    fn hear(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        if self.quiet {
            return ControlFlow::Continue(());
        }
        match event {
            Event::Waiting { again: false } => self.say("another mien is fetching; waiting for it"),
            Event::Plan { items, packages, bytes } => self.say(&format!(
                "fetching {items} files out of {packages} packages, {} MB, once",
                bytes / 1_000_000
            )),
            Event::Download { package, done, total } => {
                let percent = (done * 100).checked_div(*total).unwrap_or(0).min(100);
                self.live(&format!("  {package}: {percent} % of {} MB", total / 1_000_000));
            }
            Event::Resumed { package } => self.say(&format!("  {package}: here already")),
            Event::Sealed { item } => self.say(&format!("  {item}: sealed for this machine")),
            Event::Convert { item } => self.live(&format!("  {item}: converting")),
            Event::Ready { item, bytes } => {
                self.say(&format!("  {item}: ready, {:.1} MB", *bytes as f64 / 1e6));
            }
            Event::Skipped { item, why } => self.say(&format!("  {item}: left out. {why}")),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// A line that stays.
    fn say(&mut self, text: &str) {
        if std::mem::take(&mut self.open) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
        out::note(text);
    }

    /// A line that the next one overwrites; only on a terminal.
    fn live(&mut self, text: &str) {
        if self.live {
            self.open = true;
            let mut err = io::stderr().lock();
            let _ = write!(err, "\r\x1b[K{text}");
            let _ = err.flush();
        }
    }
}
