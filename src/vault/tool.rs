//! The clients of the registries and the converter, run as children: watched, bounded, never in a shell.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::catalog::{Package, Registry};
use crate::errors::{Error, Result};
use crate::files;

/// How often a child is looked at.
const POLL: Duration = Duration::from_millis(100);
/// How much of a child's last words is read.
const LAST_WORDS: u64 = 16 << 10;

/// The converters, written out when they are needed: the installed program stands alone.
const SCRIPTS: [(&str, &str); 16] = [
    ("convert.py", include_str!("../../models/convert/convert.py")),
    ("dlib.py", include_str!("../../models/convert/dlib.py")),
    ("flat.py", include_str!("../../models/convert/flat.py")),
    ("frame.py", include_str!("../../models/convert/frame.py")),
    ("h264.py", include_str!("../../models/convert/h264.py")),
    ("h264_tables.py", include_str!("../../models/convert/h264_tables.py")),
    ("halve.py", include_str!("../../models/convert/halve.py")),
    ("intra.py", include_str!("../../models/convert/intra.py")),
    ("inverse.py", include_str!("../../models/convert/inverse.py")),
    ("layers.py", include_str!("../../models/convert/layers.py")),
    ("onnx.py", include_str!("../../models/convert/onnx.py")),
    ("quantised.py", include_str!("../../models/convert/quantised.py")),
    ("tflite.py", include_str!("../../models/convert/tflite.py")),
    ("unpack.py", include_str!("../../models/convert/unpack.py")),
    ("values.py", include_str!("../../models/convert/values.py")),
    ("wire.py", include_str!("../../models/convert/wire.py")),
];

/// Name of the client of a registry, as a message has it.
pub(crate) const fn client(registry: Registry) -> &'static str {
    match registry {
        Registry::Pypi => "pip",
        Registry::Npm => "npm",
        Registry::Crates => "cargo",
    }
}

/// Refuses with what to install when a client is not there or does not run.
pub(crate) fn probe(registry: Registry) -> Result<()> {
    let runs = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let (tool, hint) = match registry {
        Registry::Pypi if !python() => {
            ("python3", "install Python 3.8 or later (on Debian the package `python3`)")
        }
        Registry::Pypi if !runs("python3", &["-m", "pip", "--version"]) => {
            ("python3 -m pip", "install pip (on Debian the package `python3-pip`)")
        }
        Registry::Npm if !runs("npm", &["--version"]) => {
            ("npm", "install Node.js with npm (on Debian the package `npm`)")
        }
        Registry::Crates if !runs("cargo", &["--version"]) => ("cargo", "install Rust"),
        _ => return Ok(()),
    };
    Err(Error::Tool { tool, hint })
}

fn python() -> bool {
    let mut command = Command::new("python3");
    command.args(["-E", "-s", "-c", "import sys; sys.exit(sys.version_info < (3, 8))"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A folder of this try's own, for whatever its children write.
#[derive(Debug)]
pub(crate) struct Desk {
    folder: PathBuf,
}

impl Desk {
    /// An empty folder with the converters in it.
    pub(crate) fn new(folder: PathBuf) -> Result<Self> {
        remove(&folder)?;
        files::private_dir(&folder)?;
        let desk = Self { folder };
        let scripts = desk.folder.join("convert");
        files::private_dir(&scripts)?;
        for (name, text) in SCRIPTS {
            let path = scripts.join(name);
            fs::write(&path, text).map_err(files::io("write", &path))?;
        }
        Ok(desk)
    }

    /// An empty folder on the desk.
    pub(crate) fn clear(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        remove(&folder)?;
        files::private_dir(&folder)?;
        Ok(folder)
    }

    /// Downloads a package; `watch` hears how many bytes there are so far. Where the file lies.
    pub(crate) fn download(
        &self,
        package: &Package,
        watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<PathBuf> {
        let folder = self.clear("download")?;
        let mut command = match package.registry {
            Registry::Pypi => pip(package),
            Registry::Npm => npm(package),
            Registry::Crates => cargo(package, &folder)?,
        };
        command.current_dir(&folder).env("TMPDIR", &folder);
        let tool = client(package.registry);
        let (status, words) = self.run(&mut command, tool, &mut || watch(size(&folder)))?;
        let path = match package.registry {
            Registry::Crates => cached_crate(&package.file).unwrap_or_else(|| folder.join("none")),
            Registry::Pypi | Registry::Npm => folder.join(&package.file),
        };
        if status.success() && path.is_file() {
            return Ok(path);
        }
        let why = if status.success() { "it gave another file".to_owned() } else { words };
        Err(Error::Registry { package: package.name.clone(), tool, why })
    }

    /// Runs one of the converters. `item` is what a message is about.
    pub(crate) fn convert(
        &self,
        script: &str,
        arguments: &[OsString],
        item: &str,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<()> {
        let mut command = Command::new("python3");
        command.args(["-E", "-s", "-B"]).arg(self.folder.join("convert").join(script));
        command.args(arguments).current_dir(&self.folder);
        let (status, why) = self.run(&mut command, "python3", watch)?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Convert { item: item.to_owned(), why })
    }

    /// Runs a child to its end or until `watch` breaks; its status and the last thing it said.
    fn run(
        &self,
        command: &mut Command,
        tool: &'static str,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(ExitStatus, String)> {
        let path = self.folder.join("words");
        let words = File::create(&path).map_err(files::io("create", &path))?;
        let both = words.try_clone().map_err(files::io("create", &path))?;
        command.stdin(Stdio::null()).stdout(words).stderr(both);
        let hint = "it was there and then was not; try again";
        let child = command.spawn().map_err(|_| Error::Tool { tool, hint })?;
        let mut child = Reaped(child);
        loop {
            if let Some(status) = child.0.try_wait().map_err(files::io("wait for", &path))? {
                // Ctrl-C reaches the child too; its end is then no failure of its own.
                if !status.success() && watch().is_break() {
                    return Err(Error::Cancelled);
                }
                return Ok((status, last_words(&path)));
            }
            if watch().is_break() {
                return Err(Error::Cancelled);
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A child that does not outlive its owner.
#[derive(Debug)]
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pip(package: &Package) -> Command {
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]);
    command.args(["--disable-pip-version-check", "--retries", "2", "--timeout", "20"]);
    command.args(["--only-binary", ":all:", "--dest", "."]);
    if let Some(wheel) = &package.wheel {
        command.args(["--implementation", "cp", "--python-version", &wheel.python]);
        command.args(["--abi", &wheel.abi, "--platform", &wheel.platform]);
    }
    command.arg(format!("{}=={}", package.name, package.version));
    command.env("PIP_REQUIRE_VIRTUALENV", "0");
    command
}

fn npm(package: &Package) -> Command {
    let mut command = Command::new("npm");
    command.args(["pack", "--ignore-scripts", "--loglevel=error", "--no-progress"]);
    command.args(["--no-update-notifier", "--fetch-retries=1", "--cache=npm"]);
    command.arg(format!("{}@{}", package.name, package.version));
    command
}

/// A throw-away project that depends on the crate: cargo has no other way to get one.
fn cargo(package: &Package, folder: &Path) -> Result<Command> {
    let manifest = format!(
        "[package]\nname = \"throw-away\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
         [lib]\npath = \"lib.rs\"\n[workspace]\n[dependencies]\n{} = \"={}\"\n",
        package.name, package.version
    );
    for (name, text) in [("Cargo.toml", manifest.as_str()), ("lib.rs", "")] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(files::io("write", &path))?;
    }
    let mut command = Command::new("cargo");
    command.args(["fetch", "--quiet"]);
    Ok(command)
}

fn cached_crate(file: &str) -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))?;
    let registries = fs::read_dir(home.join("registry/cache")).ok()?;
    let mut paths = registries.flatten().map(|registry| registry.path().join(file));
    paths.find(|path| path.is_file())
}

/// The line that says most: a client's last, but not where it keeps its log.
fn last_words(path: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let size = file.metadata().map_or(0, |meta| meta.len());
        let _ = file.seek(SeekFrom::Start(size.saturating_sub(LAST_WORDS)));
        let _ = file.take(LAST_WORDS).read_to_end(&mut text);
    }
    telling(&String::from_utf8_lossy(&text))
}

fn telling(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let useful = |line: &&str| !line.contains("complete log of this run");
    let retried = lines().any(|line| line.contains("Retrying (Retry("));
    let last = lines().rfind(useful).unwrap_or("it said nothing");
    let plain = last.trim_start_matches("npm error").trim_start_matches("ERROR:").trim();
    let shown: String = plain.chars().filter(|c| !c.is_control()).take(300).collect();
    // pip then says "no matching distribution", which leads astray.
    if retried { format!("the registry can't be reached ({shown})") } else { shown }
}

/// Bytes of all files below a folder.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Removes a folder that may not be there.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(files::io("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::Scratch;

    #[test]
    fn every_converter_is_written_out() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/convert");
        let entries = fs::read_dir(here).unwrap().flatten();
        let mut there: Vec<_> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        there.retain(|name| name.ends_with(".py"));
        there.sort();
        assert_eq!(there, SCRIPTS.map(|(name, _)| name));
    }

    #[test]
    fn the_last_useful_line_is_told() {
        let npm = "npm error code E404\nnpm error 404 Not Found\n\
                   npm error A complete log of this run can be found in: /x\n\n";
        assert_eq!(telling(npm), "404 Not Found");
        let pip = "WARNING: Retrying (Retry(total=1, ...\n\
                   ERROR: No matching distribution found for x==1\n";
        let told = telling(pip);
        assert!(told.contains("can't be reached") && told.contains("x==1"), "{told}");
        assert_eq!(telling(""), "it said nothing");
    }

    #[test]
    fn a_child_that_is_called_off_is_dead() {
        let scratch = Scratch::new();
        let desk = Desk::new(scratch.0.join("desk")).unwrap();
        let mark = scratch.0.join("mark");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 0.5; touch \"$0\""]).arg(&mark);
        let stopped = desk.run(&mut command, "sh", &mut || ControlFlow::Break(()));
        assert!(matches!(stopped, Err(Error::Cancelled)));
        std::thread::sleep(Duration::from_millis(800));
        assert!(!mark.exists());
    }
}
