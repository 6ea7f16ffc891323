//! Inputs as descriptors that can be read from any offset, outputs that are whole or absent.
//!
//! What an input is, is told by its first bytes; more of it is read by the worker alone.

use std::io::IsTerminal as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mien_base::limits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::kind::Kind;
use crate::stream::{copy, memfd, memory, read_pipe, write_at};
use crate::{Error, Result};

/// Where a picture or a clip comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A file, or a named pipe.
    Path(PathBuf),
    Stdin,
    /// Standard input, a pipe of which the first bytes were read.
    Piped {
        head: Vec<u8>,
    },
    /// A picture in memory, with the name that messages give it.
    Bytes {
        name: String,
        bytes: Vec<u8>,
    },
}

/// Where a picture or a clip goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A file, replaced whole at the end.
    Path(PathBuf),
    Stdout,
}

impl Input {
    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Stdin | Self::Piped { .. } => "standard input".to_owned(),
            Self::Bytes { name, .. } => name.clone(),
        }
    }

    /// Tells what it is by its first bytes. Those of a pipe are gone then: go on with the input that
    /// comes back.
    ///
    /// # Errors
    /// `Read`, `Cancelled`.
    pub fn sniff(self, stop: &AtomicBool) -> Result<(Self, Kind)> {
        let name = self.name();
        let read = |source| Error::Read { name: name.clone(), source };
        let mut head = [0; limits::CLIP_HEAD];
        let (fd, is_stdin) = match &self {
            Self::Path(path) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
                (rustix::fs::open(path, flags, Mode::empty()).map_err(read)?, false)
            }
            Self::Stdin => (stdin(&name)?, true),
            Self::Piped { head } => return Ok((self.clone(), Kind::of(head))),
            Self::Bytes { bytes, .. } => return Ok((self.clone(), Kind::of(bytes))),
        };
        let stat = rustix::fs::fstat(&fd).map_err(read)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let n = rustix::io::pread(&fd, &mut head, 0).map_err(read)?;
                Ok((self, Kind::of(head.get(..n).unwrap_or_default())))
            }
            FileType::Fifo | FileType::Socket if is_stdin => {
                let mut at = 0;
                while let Some(rest) = head.get_mut(at..).filter(|rest| !rest.is_empty()) {
                    match read_pipe(&fd, rest, stop).map_err(read)? {
                        None => return Err(Error::Cancelled),
                        Some(0) => break,
                        Some(n) => at += n,
                    }
                }
                let head = head.get(..at).unwrap_or_default().to_vec();
                let kind = Kind::of(&head);
                Ok((Self::Piped { head }, kind))
            }
            _ => Ok((self, Kind::Picture)),
        }
    }

    /// A descriptor that can be read from any offset, of at most `limits::PICTURE_FILE` bytes.
    /// What is no file is copied into sealed memory, until its end or until `stop` is set.
    ///
    /// # Errors
    /// `Read`, `NoPicture`, `TooLarge`, `Memory`, `Cancelled`.
    pub fn open(&self, stop: &AtomicBool) -> Result<OwnedFd> {
        self.open_up_to(limits::PICTURE_FILE, stop)
    }

    /// As `open`, for clips: a file may have `limits::CLIP_FILE` bytes.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_clip(&self, stop: &AtomicBool) -> Result<OwnedFd> {
        self.open_up_to(limits::CLIP_FILE, stop)
    }

    /// The descriptor of a pipe as it is, and what was read from it already; `None` for a file.
    ///
    /// # Errors
    /// `Read`.
    pub fn pipe(&self) -> Result<Option<(OwnedFd, &[u8])>> {
        match self {
            Self::Piped { head } => Ok(Some((stdin(&self.name())?, head))),
            _ => Ok(None),
        }
    }

    fn open_up_to(&self, most: u64, stop: &AtomicBool) -> Result<OwnedFd> {
        let name = self.name();
        match self {
            Self::Path(path) => {
                // Without NONBLOCK a named pipe would hold us until somebody writes to it.
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
                let fd = rustix::fs::open(path, flags, Mode::empty())
                    .map_err(|source| Error::Read { name: name.clone(), source })?;
                readable(fd, name, most, stop)
            }
            Self::Stdin => readable(stdin(&name)?, name, most, stop),
            Self::Piped { head } => copy(&stdin(&name)?, head, name, stop),
            Self::Bytes { bytes, .. } if bytes.len() as u64 > limits::PICTURE_FILE => {
                Err(Error::TooLarge { name, most: limits::PICTURE_FILE })
            }
            Self::Bytes { bytes, .. } => memory("a picture", bytes),
        }
    }
}

fn stdin(name: &str) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
        .map_err(|source| Error::Read { name: name.to_owned(), source })
}

fn readable(fd: OwnedFd, name: String, most: u64, stop: &AtomicBool) -> Result<OwnedFd> {
    let stat =
        rustix::fs::fstat(&fd).map_err(|source| Error::Read { name: name.clone(), source })?;
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_size as u64 > most => {
            return Err(Error::TooLarge { name, most });
        }
        FileType::RegularFile => return Ok(fd),
        FileType::Fifo | FileType::Socket => return copy(&fd, &[], name, stop),
        FileType::Directory => "a folder",
        FileType::CharacterDevice if fd.is_terminal() => "a terminal",
        _ => "a device",
    };
    Err(Error::NoPicture { name, what })
}

/// An output that is being written. Dropped before `commit`, it leaves nothing.
#[derive(Debug)]
pub struct Pending {
    fd: OwnedFd,
    name: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A file without a name in the folder of `target`.
    Nameless { folder: OwnedFd, target: PathBuf },
    /// A hidden file, where the file system knows no nameless ones.
    Hidden { folder: OwnedFd, target: PathBuf, hidden: Hidden },
    /// Memory that is copied out at the end: standard output, pipes and devices.
    Stream(Option<PathBuf>),
    /// Memory that is handed back.
    Memory,
}

/// A name in a folder that goes away with this value.
#[derive(Debug)]
struct Hidden {
    path: PathBuf,
    kept: bool,
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if !self.kept {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

impl Output {
    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Stdout => "standard output".to_owned(),
        }
    }

    /// Where frames go as they come, when it is no file: standard output, a pipe, a device.
    ///
    /// # Errors
    /// `Write`.
    pub fn pipe(&self) -> Result<Option<OwnedFd>> {
        let write = |source| Error::Write { name: self.name(), source };
        match self {
            Self::Stdout => {
                rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3).map(Some).map_err(write)
            }
            Self::Path(path) => {
                match rustix::fs::stat(path).map(|s| FileType::from_raw_mode(s.st_mode)) {
                    Ok(FileType::RegularFile | FileType::Directory) | Err(_) => Ok(None),
                    Ok(_) => {
                        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                        rustix::fs::open(path, flags, Mode::empty()).map(Some).map_err(write)
                    }
                }
            }
        }
    }

    /// Begins to write; the target is not touched before `commit`.
    ///
    /// # Errors
    /// `Write`, `Memory`.
    pub fn begin(&self) -> Result<Pending> {
        let name = self.name();
        let Self::Path(target) = self else {
            return Pending::memory_at(name, Place::Stream(None));
        };
        let write = |source| Error::Write { name: name.clone(), source };
        // What a link points to is replaced, not the link.
        let target = &std::fs::canonicalize(target).unwrap_or_else(|_| target.clone());
        match rustix::fs::stat(target).map(|s| FileType::from_raw_mode(s.st_mode)) {
            Ok(FileType::RegularFile) | Err(Errno::NOENT) => {}
            Ok(FileType::Directory) => return Err(write(Errno::ISDIR)),
            Ok(_) => return Pending::memory_at(name, Place::Stream(Some(target.clone()))),
            Err(source) => return Err(write(source)),
        }
        if target.file_name().is_none() {
            return Err(write(Errno::ISDIR));
        }
        let parent = match target.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(parent, flags, Mode::empty()).map_err(write)?;
        let mode = Mode::from_raw_mode(0o666);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(&folder, ".", flags | OFlags::TMPFILE, mode) {
            Ok(fd) => {
                let place = Place::Nameless { folder, target: target.clone() };
                Ok(Pending { fd, name, place })
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let path = hidden_beside(target);
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                let fd = rustix::fs::open(&path, flags, mode).map_err(write)?;
                let hidden = Hidden { path, kept: false };
                let place = Place::Hidden { folder, target: target.clone(), hidden };
                Ok(Pending { fd, name, place })
            }
            Err(source) => Err(write(source)),
        }
    }
}

/// A name that no other process and no other output of this one takes.
fn hidden_beside(target: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let process = rustix::process::getpid().as_raw_nonzero();
    target.with_file_name(format!(".mien-{process}-{count}.part"))
}

impl Pending {
    /// An output that stays in memory, for `into_bytes`.
    ///
    /// # Errors
    /// `Memory`.
    pub fn in_memory(name: &str) -> Result<Self> {
        Self::memory_at(name.to_owned(), Place::Memory)
    }

    fn memory_at(name: String, place: Place) -> Result<Self> {
        let fd = memfd().map_err(|source| Error::Memory { what: "an output", source })?;
        Ok(Self { fd, name, place })
    }

    fn checked(&self, bytes: u64) -> Result<()> {
        let stat = rustix::fs::fstat(&self.fd).map_err(self.write())?;
        let found = u64::try_from(stat.st_size).unwrap_or(0);
        if found != bytes || bytes == 0 {
            return Err(Error::Short { name: self.name.clone(), said: bytes, found });
        }
        Ok(())
    }

    fn write(&self) -> impl Fn(Errno) -> Error + use<> {
        let name = self.name.clone();
        move |source| Error::Write { name: name.clone(), source }
    }

    /// Another name in the same folder, for what is not known when it is begun.
    #[must_use]
    pub(crate) fn named(mut self, path: &Path) -> Self {
        if let Place::Nameless { target, .. } | Place::Hidden { target, .. } = &mut self.place {
            path.clone_into(target);
            self.name = path.display().to_string();
        }
        self
    }

    /// Puts the output where it belongs, in one step, and makes it last.
    ///
    /// # Errors
    /// `Short` when not exactly `bytes` are there, `Write`.
    pub fn commit(self, bytes: u64) -> Result<()> {
        self.checked(bytes)?;
        let write = self.write();
        match self.place {
            Place::Nameless { folder, target } => {
                rustix::fs::fsync(&self.fd).map_err(&write)?;
                if !link(&self.fd, &target).map_err(&write)? {
                    let mut hidden = Hidden { path: hidden_beside(&target), kept: true };
                    if !link(&self.fd, &hidden.path).map_err(&write)? {
                        return Err(write(Errno::EXIST));
                    }
                    hidden.kept = false;
                    rustix::fs::rename(&hidden.path, &target).map_err(&write)?;
                    hidden.kept = true;
                }
                rustix::fs::fsync(&folder).map_err(&write)
            }
            Place::Hidden { folder, target, mut hidden } => {
                rustix::fs::fsync(&self.fd).map_err(&write)?;
                rustix::fs::rename(&hidden.path, &target).map_err(&write)?;
                hidden.kept = true;
                rustix::fs::fsync(&folder).map_err(&write)
            }
            Place::Stream(None) => pour(&self.fd, rustix::stdio::stdout(), bytes).map_err(write),
            Place::Stream(Some(target)) => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                let to = rustix::fs::open(&target, flags, Mode::empty()).map_err(&write)?;
                pour(&self.fd, to.as_fd(), bytes).map_err(write)
            }
            Place::Memory => Ok(()),
        }
    }

    /// Writes all of a file and puts it where it belongs.
    ///
    /// # Errors
    /// As `commit`.
    pub fn commit_bytes(self, bytes: &[u8]) -> Result<()> {
        write_at(&self.fd, bytes, 0).map_err(self.write())?;
        self.commit(bytes.len() as u64)
    }

    /// A file that goes away with its descriptor, and what messages call it.
    pub(crate) fn into_scratch(self) -> (OwnedFd, String) {
        (self.fd, self.name)
    }

    /// The descriptor, to read what was written.
    ///
    /// # Errors
    /// `Short` when not exactly `bytes` are there, `Write`.
    pub(crate) fn into_written(self, bytes: u64) -> Result<OwnedFd> {
        self.checked(bytes)?;
        Ok(self.fd)
    }

    /// What was written, to be worked on further.
    ///
    /// # Errors
    /// `Short` when not exactly `bytes` are there, `TooLarge`, `Write`.
    pub fn into_bytes(self, bytes: u64) -> Result<Vec<u8>> {
        self.checked(bytes)?;
        if bytes > limits::PICTURE_FILE {
            return Err(Error::TooLarge { name: self.name, most: limits::PICTURE_FILE });
        }
        let mut all = vec![0; usize::try_from(bytes).unwrap_or(0)];
        let mut at = 0;
        while let Some(rest) = all.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(&self.fd, rest, at as u64).map_err(self.write())? {
                0 => return Err(Error::Short { name: self.name, said: bytes, found: at as u64 }),
                n => at += n,
            }
        }
        Ok(all)
    }
}

impl AsFd for Pending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Gives a nameless file a name; false when the name is taken.
fn link(fd: &OwnedFd, path: &Path) -> std::result::Result<bool, Errno> {
    use std::os::fd::AsRawFd as _;
    let nameless = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let cwd = rustix::fs::CWD;
    match rustix::fs::linkat(cwd, nameless, cwd, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn pour(from: &OwnedFd, to: BorrowedFd<'_>, bytes: u64) -> std::result::Result<(), Errno> {
    let (mut buffer, mut at) = (vec![0; 256 << 10], 0u64);
    while at < bytes {
        let read = rustix::io::pread(from, &mut buffer, at)?;
        let mut part = buffer.get(..read).filter(|p| !p.is_empty()).ok_or(Errno::IO)?;
        at += read as u64;
        while !part.is_empty() {
            match rustix::io::write(to, part) {
                Ok(n) => part = part.get(n..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None)?;
                }
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = hidden_beside(&std::env::temp_dir().join("x")).with_extension(name);
            fs::create_dir(&path).unwrap();
            Self(path)
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

    static GO: AtomicBool = AtomicBool::new(false);

    fn content(fd: &OwnedFd) -> Vec<u8> {
        let mut all = vec![0; 1 << 20];
        let n = rustix::io::pread(fd, &mut all, 0).unwrap();
        all.truncate(n);
        all
    }

    #[test]
    fn files_links_and_any_name_are_opened() {
        let scratch = Scratch::new("open");
        let file = scratch.0.join("ein Bild – 写真.jpg");
        fs::write(&file, b"picture").unwrap();
        std::os::unix::fs::symlink(&file, scratch.0.join("link")).unwrap();
        for name in ["ein Bild – 写真.jpg", "link"] {
            let input = Input::Path(scratch.0.join(name));
            assert_eq!(content(&input.open(&GO).unwrap()), b"picture");
        }
    }

    #[test]
    fn what_is_no_picture_is_refused_by_name() {
        let scratch = Scratch::new("refuse");
        let open = |path: &Path| Input::Path(path.to_owned()).open(&GO).unwrap_err();
        assert!(open(&scratch.0).to_string().contains("a folder"));
        assert!(open(Path::new("/dev/zero")).to_string().contains("a device"));
        let missing = open(&scratch.0.join("none"));
        assert_eq!(missing.kind(), mien_base::error::ErrorKind::Io);
        let large = scratch.0.join("large");
        fs::File::create(&large).unwrap().set_len(limits::PICTURE_FILE + 1).unwrap();
        assert!(matches!(open(&large), Error::TooLarge { .. }));
    }

    #[test]
    fn a_named_pipe_is_read_to_its_end_and_stops_when_told() {
        let scratch = Scratch::new("pipe");
        let pipe = scratch.0.join("pipe");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        let stopped = Input::Path(pipe.clone()).open(&AtomicBool::new(true));
        assert!(matches!(stopped, Err(Error::Cancelled)));
        let long: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        let written = long.clone();
        let to = pipe.clone();
        let writer =
            std::thread::Builder::new().spawn(move || fs::write(to, written).unwrap()).unwrap();
        let fd = Input::Path(pipe).open(&GO).unwrap();
        writer.join().unwrap();
        assert_eq!(content(&fd), long);
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err(), "a copy is sealed");
    }

    #[test]
    fn an_output_is_whole_or_absent() {
        let scratch = Scratch::new("output");
        let target = scratch.0.join("out.png");
        let output = Output::Path(target.clone());
        for old in [None, Some(b"old")] {
            if let Some(old) = old {
                fs::write(&target, old).unwrap();
            }
            let names = scratch.names();
            let pending = output.begin().unwrap();
            rustix::io::pwrite(&pending, b"half", 0).unwrap();
            assert_eq!(scratch.names(), names);
            drop(pending);
            assert_eq!(scratch.names(), names);

            let pending = output.begin().unwrap();
            rustix::io::pwrite(&pending, b"whole", 0).unwrap();
            pending.commit(5).unwrap();
            assert_eq!(fs::read(&target).unwrap(), b"whole");
            assert_eq!(scratch.names(), ["out.png"]);
        }
    }

    #[test]
    fn a_link_stays_and_its_file_is_replaced() {
        let scratch = Scratch::new("link");
        fs::write(scratch.0.join("file"), b"old").unwrap();
        std::os::unix::fs::symlink(scratch.0.join("file"), scratch.0.join("link")).unwrap();
        let pending = Output::Path(scratch.0.join("link")).begin().unwrap();
        rustix::io::pwrite(&pending, b"whole", 0).unwrap();
        pending.commit(5).unwrap();
        assert_eq!(fs::read(scratch.0.join("file")).unwrap(), b"whole");
        assert!(fs::symlink_metadata(scratch.0.join("link")).unwrap().is_symlink());
    }

    #[test]
    fn an_output_that_is_shorter_than_said_is_not_kept() {
        let scratch = Scratch::new("short");
        let pending = Output::Path(scratch.0.join("out")).begin().unwrap();
        rustix::io::pwrite(&pending, b"half", 0).unwrap();
        assert!(matches!(pending.commit(5), Err(Error::Short { said: 5, found: 4, .. })));
        let pending = Output::Path(scratch.0.join("out")).begin().unwrap();
        assert!(pending.commit(0).is_err());
        assert!(scratch.names().is_empty());
    }

    #[test]
    fn a_hidden_file_goes_away_with_its_output_and_becomes_it_when_committed() {
        let scratch = Scratch::new("hidden");
        let target = scratch.0.join("out");
        let begin = || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            let path = hidden_beside(&target);
            let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)).unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let folder = rustix::fs::open(&scratch.0, flags, Mode::empty()).unwrap();
            let hidden = Hidden { path, kept: false };
            let place = Place::Hidden { folder, target: target.clone(), hidden };
            Pending { fd, name: "out".to_owned(), place }
        };
        let pending = begin();
        assert_eq!(scratch.names().len(), 1);
        drop(pending);
        assert!(scratch.names().is_empty());
        let pending = begin();
        rustix::io::pwrite(&pending, b"whole", 0).unwrap();
        pending.commit(5).unwrap();
        assert_eq!(scratch.names(), ["out"]);
    }

    #[test]
    fn a_folder_and_a_missing_folder_are_refused_as_outputs() {
        let scratch = Scratch::new("folder");
        assert!(Output::Path(scratch.0.clone()).begin().is_err());
        assert!(Output::Path(scratch.0.join("none/out")).begin().is_err());
    }

    #[test]
    fn an_output_in_memory_gives_its_bytes_back() {
        let pending = Pending::in_memory("portrait").unwrap();
        rustix::io::pwrite(&pending, b"png", 0).unwrap();
        assert_eq!(pending.into_bytes(3).unwrap(), b"png");
    }
}
