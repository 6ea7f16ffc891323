//! A folder of recordings or pictures: names that grow, what is old goes, the disk keeps room.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mien_base::clock::Wall;

use crate::config::Keep;
use crate::errors::file;
use crate::files::{Output, Pending};
use crate::{Error, Result};

/// Before this the wall clock was not set, and says nothing of age.
const SET: Wall = Wall(1_735_689_600);

/// A file of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    path: PathBuf,
    bytes: u64,
    made: Wall,
}

/// One output's folder.
#[derive(Debug)]
pub(super) struct Folder {
    dir: PathBuf,
    stem: String,
    ending: &'static str,
    keep: Keep,
    /// Oldest first.
    kept: VecDeque<Kept>,
    bytes: u64,
    next: u64,
}

impl Folder {
    /// Makes the folder where it is missing, and takes up what is there.
    ///
    /// # Errors
    /// `File`.
    pub(super) fn open(dir: &Path, stem: &str, ending: &'static str, keep: Keep) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(file("make the folder", dir))?;
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(file("read the folder", dir))? {
            let entry = entry.map_err(file("read the folder", dir))?;
            let number = entry.file_name().to_str().and_then(|name| number(name, stem, ending));
            // One that went away meanwhile is not kept.
            let (Some(number), Ok(meta)) = (number, entry.metadata()) else { continue };
            let made =
                meta.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
            let made = Wall(made.map_or(0, |since| since.as_secs()));
            found.push((number, Kept { path: entry.path(), bytes: meta.len(), made }));
        }
        found.sort_by_key(|(number, _)| *number);
        let next = found.last().map_or(0, |(number, _)| number + 1);
        let bytes = found.iter().map(|(_, kept)| kept.bytes).sum();
        let kept = found.into_iter().map(|(_, kept)| kept).collect();
        Ok(Self { dir: dir.to_owned(), stem: stem.to_owned(), ending, keep, kept, bytes, next })
    }

    /// Begins a file that has no name yet, once there is room for one like the last: for that the
    /// oldest go.
    ///
    /// # Errors
    /// `Full` when nothing of ours is left that could go; `Write`, `File`.
    pub(super) fn begin(&mut self, now: Wall) -> Result<Pending> {
        let bytes = self.kept.back().map_or(0, |kept| kept.bytes);
        self.tidy(bytes, now)?;
        Output::Path(self.dir.join("recording")).begin()
    }

    /// Removes what is too old, what is too much, and what the disk has no room for.
    ///
    /// # Errors
    /// As `begin`.
    fn tidy(&mut self, bytes: u64, now: Wall) -> Result<()> {
        let old = |kept: &Kept| {
            let age = Duration::from_secs(now.0.saturating_sub(kept.made.0));
            // A clock that was not set, then or now, must not cost a recording.
            now >= SET && kept.made >= SET && self.keep.age.is_some_and(|most| age > most)
        };
        let gone = self.kept.iter().take_while(|kept| old(kept)).count();
        for _ in 0..gone {
            self.remove_oldest()?;
        }
        while self.bytes.saturating_add(bytes) > self.keep.bytes && !self.kept.is_empty() {
            self.remove_oldest()?;
        }
        loop {
            let free = self.free()?;
            let wanted = self.keep.free.saturating_add(bytes);
            if free >= wanted {
                return Ok(());
            }
            if self.kept.is_empty() {
                let name = self.dir.display().to_string();
                return Err(Error::Full { name, free: free >> 20, wanted: wanted >> 20 });
            }
            self.remove_oldest()?;
        }
    }

    fn free(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.dir);
        let stat = stat.map_err(|e| file("ask for room in", &self.dir)(e.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn remove_oldest(&mut self) -> Result<()> {
        let Some(kept) = self.kept.pop_front() else { return Ok(()) };
        self.bytes = self.bytes.saturating_sub(kept.bytes);
        match std::fs::remove_file(&kept.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(file("remove", &kept.path)(error))
            }
            _ => Ok(()),
        }
    }

    /// The name of the next file; `start` is when its first frame was taken.
    pub(super) fn name(&self, start: Wall) -> PathBuf {
        let (y, mo, d, h, mi, s) = start.civil();
        let Self { stem, next, ending, .. } = self;
        let name = format!("{stem}-{next:08}-{y:04}{mo:02}{d:02}T{h:02}{mi:02}{s:02}Z.{ending}");
        self.dir.join(name)
    }

    /// A file of that name is there from now on.
    pub(super) fn took(&mut self, path: PathBuf, bytes: u64, made: Wall) {
        self.next += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.kept.push_back(Kept { path, bytes, made });
    }
}

/// The number in a name of ours.
fn number(name: &str, stem: &str, ending: &str) -> Option<u64> {
    let rest = name.strip_prefix(stem)?.strip_prefix('-')?;
    let (digits, rest) = rest.split_once('-')?;
    let stamp = rest.strip_suffix(ending)?.strip_suffix('.')?;
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let fits = digits.len() == 8 && plain(digits) && stamp.len() == 16 && stamp.ends_with('Z');
    if fits { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("mien-fold-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn open(&self, age: Option<u64>, bytes: u64, free: u64) -> Folder {
            let keep = Keep { age: age.map(Duration::from_secs), bytes, free };
            Folder::open(&self.0, "door", "mp4", keep).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> =
                entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const NOW: Wall = Wall(1_796_094_454);

    fn add(folder: &mut Folder, bytes: usize, now: Wall) {
        let pending = folder.begin(now).unwrap();
        let path = folder.name(now);
        pending.named(&path).commit_bytes(&vec![7; bytes]).unwrap();
        folder.took(path, bytes as u64, now);
    }

    #[test]
    fn numbers_go_on_after_a_restart_whatever_the_clock_says() {
        let scratch = Scratch::new("numbers");
        add(&mut scratch.open(None, 1 << 30, 0), 10, NOW);
        fs::write(scratch.0.join("door-notes.mp4"), "not ours").unwrap();
        add(&mut scratch.open(None, 1 << 30, 0), 10, Wall(5));
        assert_eq!(
            scratch.names(),
            [
                "door-00000000-20261201T030734Z.mp4",
                "door-00000001-19700101T000005Z.mp4",
                "door-notes.mp4"
            ]
        );
    }

    #[test]
    fn what_is_too_much_goes_oldest_first_and_only_what_is_ours() {
        let scratch = Scratch::new("much");
        let mut folder = scratch.open(None, 25, 0);
        fs::write(scratch.0.join("other"), vec![0; 100]).unwrap();
        (0..5).for_each(|_| add(&mut folder, 10, NOW));
        let names = scratch.names();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names[0].contains("00000003") && names[1].contains("00000004"));
        assert_eq!(names[2], "other");
    }

    #[test]
    fn what_is_too_old_goes_but_not_when_a_clock_was_not_set() {
        let scratch = Scratch::new("old");
        let mut folder = scratch.open(Some(60), 1 << 30, 0);
        add(&mut folder, 10, Wall(100));
        folder.tidy(0, NOW).unwrap();
        assert_eq!(folder.kept.len(), 1, "made before the clock was set");
        folder.remove_oldest().unwrap();
        add(&mut folder, 10, NOW);
        folder.tidy(0, Wall(NOW.0 + 60)).unwrap();
        assert_eq!(folder.kept.len(), 1);
        folder.tidy(0, Wall(0)).unwrap();
        assert_eq!(folder.kept.len(), 1, "the clock fell back");
        folder.tidy(0, Wall(NOW.0 + 61)).unwrap();
        assert!(scratch.names().is_empty());
    }

    #[test]
    fn a_full_disk_costs_the_oldest_and_then_nothing_is_begun() {
        let scratch = Scratch::new("full");
        let mut folder = scratch.open(None, 1 << 30, 0);
        add(&mut folder, 10, NOW);
        folder.keep.free = u64::MAX;
        let error = folder.begin(NOW).unwrap_err();
        assert!(matches!(error, Error::Full { .. }), "{error}");
        assert!(scratch.names().is_empty());
    }
}
