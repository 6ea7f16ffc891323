//! Whole segments of a clip beside its output: what an interrupted clip goes on from.
//!
//! ```text
//!   .out.mp4.mien/segments   bytes of every segment so far, and of one that may be torn
//!   .out.mp4.mien/state      where the last whole one ends, replaced in one step
//! ```
//! A folder belongs to one output and is held by one process. What it holds counts only for the
//! same job: anything that decides a byte of the output stands in its key.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use mien_base::clock::Wall;
use mien_base::id::JobId;
use mien_base::limits;
use mien_base::wire::clip::Resume;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::files::Pending;
use crate::{Error, Result};

/// Version of the state file; what another version left is not gone on with.
const VERSION: u32 = 1;
/// Free space below which no segment is begun.
const FREE: u64 = 64 << 20;
/// Longest name of a folder without its ending: with it, what file systems take.
const NAME: usize = 200;
/// Times that a folder which another process just removed is made anew.
const TRIES: u32 = 16;

/// What makes two runs the same job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Of all that decides a byte of the output but job id and clock, 64 hex digits.
    pub digest: String,
    /// The job id and the clock that this run must have, where it must.
    pub job: Option<JobId>,
    pub wall: Option<Wall>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    digest: String,
    job: JobId,
    wall: Wall,
    segment: u64,
    frames: u64,
    bytes: u64,
    /// Hex.
    worker: String,
}

/// The segments of one output. Dropped without one that is whole, they leave nothing.
#[derive(Debug)]
pub struct Segments {
    place: Option<Place>,
    file: OwnedFd,
    name: String,
    digest: String,
    begun: Option<(JobId, Wall)>,
    end: Option<Resume>,
}

/// Where they lie.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// Locked for as long as it is open.
    folder: OwnedFd,
}

impl Segments {
    /// Opens what an interrupted run of the same job left beside `target`, or begins anew.
    ///
    /// # Errors
    /// `Busy` when another process is at it, `Full`, `Write`.
    pub fn open(target: &Path, key: &Key) -> Result<Self> {
        let name = target.display().to_string();
        let write = |source| Error::Write { name: name.clone(), source };
        let place = Place::lock(target, &name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&place.folder, "segments", flags, Mode::from_raw_mode(0o600))
            .map_err(write)?;
        let state = place.state().filter(|state| {
            state.version == VERSION
                && state.digest == key.digest
                && key.job.is_none_or(|job| job == state.job)
                && key.wall.is_none_or(|wall| wall == state.wall)
        });
        let mut segments = Self {
            place: Some(place),
            file,
            name: name.clone(),
            digest: key.digest.clone(),
            begun: None,
            end: None,
        };
        if let Some(state) = state
            && let Some(worker) = unhex(&state.worker)
            && segments.length().map_err(write)? >= state.bytes
        {
            segments.begun = Some((state.job, state.wall));
            segments.end = Some(Resume {
                segment: state.segment,
                frames: state.frames,
                bytes: state.bytes,
                state: worker,
            });
        } else if let Some(place) = &segments.place {
            // Of another job: its state must not outlive its bytes.
            match rustix::fs::unlinkat(&place.folder, "state", AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(source) => return Err(write(source)),
            }
        }
        segments.rewind()?;
        segments.check_space(0)?;
        Ok(segments)
    }

    /// Segments in an output of their own that is never committed: nothing is left of them.
    #[must_use]
    pub(crate) fn fleeting(output: Pending) -> Self {
        let (file, name) = output.into_scratch();
        Self { place: None, file, name, digest: String::new(), begun: None, end: None }
    }

    /// Job id and clock of the run that began it.
    #[must_use]
    pub fn begun(&self) -> Option<(JobId, Wall)> {
        self.begun
    }

    /// Where the last whole segment ends.
    #[must_use]
    pub fn end(&self) -> Option<&Resume> {
        self.end.as_ref()
    }

    /// The folder, when something is kept there.
    #[must_use]
    pub fn kept(&self) -> Option<&Path> {
        let place = self.place.as_ref()?;
        self.end.as_ref().map(|_| place.path.as_path())
    }

    /// Cuts what follows the last whole segment.
    ///
    /// # Errors
    /// `Write`.
    pub(crate) fn rewind(&self) -> Result<()> {
        let bytes = self.end.as_ref().map_or(0, |end| end.bytes);
        rustix::fs::ftruncate(&self.file, bytes).map_err(self.write())
    }

    /// One more segment is whole: makes it last.
    ///
    /// # Errors
    /// `Short` when it is not all there, `Full` when the next has no room, `Write`; `Protocol` when
    /// the worker goes backwards.
    pub(crate) fn advance(&mut self, job: JobId, wall: Wall, end: Resume) -> Result<()> {
        let (segment, frames, bytes) =
            self.end.as_ref().map_or((0, 0, 0), |end| (end.segment, end.frames, end.bytes));
        let forward = end.segment == segment + 1 && end.frames > frames && end.bytes > bytes;
        if !forward || end.state.len() > limits::CLIP_RESUME {
            return Err(Error::Protocol { what: "a segment that does not follow the last" });
        }
        let found = self.length().map_err(self.write())?;
        if found < end.bytes {
            return Err(Error::Short { name: self.name.clone(), said: end.bytes, found });
        }
        if let Some(place) = &self.place {
            rustix::fs::fdatasync(&self.file).map_err(self.write())?;
            let state = State {
                version: VERSION,
                digest: self.digest.clone(),
                job,
                wall,
                segment: end.segment,
                frames: end.frames,
                bytes: end.bytes,
                worker: hex(&end.state),
            };
            place.replace_state(&state).map_err(self.write())?;
        }
        self.begun = Some((job, wall));
        let bytes = end.bytes;
        self.end = Some(end);
        self.check_space(bytes)
    }

    /// Leaves nothing: the output is there, or never will be.
    pub fn discard(mut self) {
        self.end = None;
    }

    /// Room for what is still to be written: at least the joined copy of what is there.
    fn check_space(&self, bytes: u64) -> Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        let stat = rustix::fs::fstatvfs(&place.folder).map_err(self.write())?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let wanted = FREE.saturating_add(bytes);
        if free >= wanted {
            return Ok(());
        }
        Err(Error::Full { name: self.name.clone(), free: free >> 20, wanted: wanted >> 20 })
    }

    fn length(&self) -> std::result::Result<u64, Errno> {
        Ok(u64::try_from(rustix::fs::fstat(&self.file)?.st_size).unwrap_or(0))
    }

    fn write(&self) -> impl Fn(Errno) -> Error + use<> {
        let name = self.name.clone();
        move |source| Error::Write { name: name.clone(), source }
    }
}

impl AsFd for Segments {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        if let Some(place) = self.place.take_if(|_| self.end.is_none()) {
            for name in ["state", "state.new", "segments"] {
                let _ = rustix::fs::unlinkat(&place.folder, name, AtFlags::empty());
            }
            let _ = rustix::fs::rmdir(&place.path);
        }
    }
}

/// The folder with what an interrupted run left of an output, when there is something.
#[must_use]
pub fn kept_for(output: &Path) -> Option<PathBuf> {
    let target = std::fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
    folder_of(&target).filter(|folder| folder.join("state").is_file())
}

fn folder_of(target: &Path) -> Option<PathBuf> {
    let mut text = target.file_name()?.to_string_lossy().into_owned();
    text.truncate(text.floor_char_boundary(NAME));
    Some(target.with_file_name(format!(".{text}.mien")))
}

impl Place {
    fn lock(target: &Path, name: &str) -> Result<Self> {
        let write = |source| Error::Write { name: name.to_owned(), source };
        let path = folder_of(target).ok_or(Errno::ISDIR).map_err(write)?;
        for _ in 0..TRIES {
            match rustix::fs::mkdir(&path, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(source) => return Err(write(source)),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let folder = match rustix::fs::open(&path, flags, Mode::empty()) {
                Ok(folder) => folder,
                Err(Errno::NOENT) => continue,
                Err(source) => return Err(write(source)),
            };
            match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return Err(Error::Busy { name: name.to_owned() }),
                Err(source) => return Err(write(source)),
            }
            // Who held it before may have removed it meanwhile.
            let same = |a: &rustix::fs::Stat, b: &rustix::fs::Stat| {
                (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
            };
            if let (Ok(ours), Ok(named)) = (rustix::fs::fstat(&folder), rustix::fs::lstat(&path))
                && same(&ours, &named)
            {
                return Ok(Self { path, folder });
            }
        }
        Err(Error::Busy { name: name.to_owned() })
    }

    /// What the state file says; `None` when there is none, or none that can be read.
    fn state(&self) -> Option<State> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&self.folder, "state", flags, Mode::empty()).ok()?;
        let most = 2 * limits::CLIP_RESUME + 4096;
        let size = usize::try_from(rustix::fs::fstat(&fd).ok()?.st_size).ok()?;
        if size > most {
            return None;
        }
        let (mut text, mut at) = (vec![0; size], 0);
        while let Some(rest) = text.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(&fd, rest, at as u64) {
                Ok(0) => return None,
                Ok(n) => at += n,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        serde_json::from_slice(&text).ok()
    }

    fn replace_state(&self, state: &State) -> std::result::Result<(), Errno> {
        let text = serde_json::to_vec(state).map_err(|_| Errno::INVAL)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&self.folder, "state.new", flags, Mode::from_raw_mode(0o600))?;
        crate::stream::write_at(&fd, &text, 0)?;
        rustix::fs::fdatasync(&fd)?;
        rustix::fs::renameat(&self.folder, "state.new", &self.folder, "state")?;
        rustix::fs::fsync(&self.folder)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|p| Some(digit(*p.first()?)? << 4 | digit(*p.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("mien-segments-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn target(&self) -> PathBuf {
            self.0.join("out.mp4")
        }

        fn is_empty(&self) -> bool {
            fs::read_dir(&self.0).unwrap().next().is_none()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const JOB: JobId = JobId([3; 16]);
    const WALL: Wall = Wall(1_796_063_974);

    fn key(digest: &str) -> Key {
        Key { digest: digest.to_owned(), job: None, wall: None }
    }

    fn end(segment: u64, bytes: u64) -> Resume {
        Resume { segment, frames: 120 * segment, bytes, state: vec![segment as u8, 0xfe] }
    }

    fn append(segments: &Segments, bytes: &[u8]) {
        let at = segments.length().unwrap();
        rustix::io::pwrite(segments, bytes, at).unwrap();
    }

    /// Two whole segments, a torn one, and the end of the process.
    fn interrupted(scratch: &Scratch) {
        let mut segments = Segments::open(&scratch.target(), &key("a")).unwrap();
        assert_eq!(segments.begun(), None);
        append(&segments, b"first");
        segments.advance(JOB, WALL, end(1, 5)).unwrap();
        append(&segments, b"second");
        segments.advance(JOB, WALL, end(2, 11)).unwrap();
        append(&segments, b"torn");
    }

    #[test]
    fn a_run_goes_on_after_the_last_whole_segment_as_the_job_it_was() {
        let scratch = Scratch::new("on");
        interrupted(&scratch);
        let segments = Segments::open(&scratch.target(), &key("a")).unwrap();
        assert_eq!(segments.begun(), Some((JOB, WALL)));
        assert_eq!(segments.end(), Some(&end(2, 11)));
        assert_eq!(segments.length().unwrap(), 11, "what was torn is cut off");
        assert!(segments.kept().is_some());
        segments.discard();
        assert!(scratch.is_empty());
    }

    #[test]
    fn another_job_or_another_clock_begins_anew() {
        let other_job = Key { job: Some(JobId([4; 16])), ..key("a") };
        let other_wall = Key { wall: Some(Wall(5)), ..key("a") };
        for other in [key("b"), other_job, other_wall] {
            let scratch = Scratch::new("anew");
            interrupted(&scratch);
            let segments = Segments::open(&scratch.target(), &other).unwrap();
            assert_eq!((segments.begun(), segments.end()), (None, None), "{other:?}");
            assert_eq!(segments.length().unwrap(), 0);
            drop(segments);
            assert!(scratch.is_empty());
        }
    }

    #[test]
    fn a_state_that_does_not_fit_its_bytes_or_does_not_read_begins_anew() {
        for spoil in [
            |folder: &Path| fs::write(folder.join("segments"), b"first").unwrap(),
            |folder: &Path| fs::write(folder.join("state"), b"{}").unwrap(),
            |folder: &Path| fs::remove_file(folder.join("state")).unwrap(),
            |folder: &Path| {
                let text = fs::read_to_string(folder.join("state")).unwrap();
                fs::write(folder.join("state"), text.replace("02fe", "02fé")).unwrap();
            },
        ] {
            let scratch = Scratch::new("spoilt");
            interrupted(&scratch);
            spoil(&scratch.0.join(".out.mp4.mien"));
            let segments = Segments::open(&scratch.target(), &key("a")).unwrap();
            assert_eq!(segments.end(), None);
        }
    }

    #[test]
    fn one_process_holds_an_output_and_nothing_is_left_without_a_segment() {
        let scratch = Scratch::new("held");
        let first = Segments::open(&scratch.target(), &key("a")).unwrap();
        append(&first, b"torn");
        let second = Segments::open(&scratch.target(), &key("a"));
        assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
        drop(first);
        assert!(scratch.is_empty());
    }

    #[test]
    fn a_worker_that_goes_backwards_or_lies_about_bytes_is_not_believed() {
        let scratch = Scratch::new("lies");
        let mut segments = Segments::open(&scratch.target(), &key("a")).unwrap();
        append(&segments, b"first");
        assert!(matches!(segments.advance(JOB, WALL, end(1, 6)), Err(Error::Short { .. })));
        segments.advance(JOB, WALL, end(1, 5)).unwrap();
        for lie in [end(1, 5), end(3, 9), end(2, 5)] {
            let result = segments.advance(JOB, WALL, lie);
            assert!(matches!(result, Err(Error::Protocol { .. })), "{result:?}");
        }
        segments.discard();
    }
}
