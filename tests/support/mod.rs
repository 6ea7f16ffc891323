//! What the process tests share: a home of their own, the real models, the program.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Shared by tests; not each uses all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use mien_pixels::codec::{self, FileFormat, Metadata};
use mien_pixels::geometry::{Roi, Size};
use mien_pixels::view::Rgb;

/// A folder that goes away, with a home inside that sees the real models.
pub struct Bench {
    pub at: PathBuf,
}

impl Bench {
    /// Needs `MIEN_MODELS`.
    pub fn new(name: &str) -> Self {
        let bench = Self::bare(name);
        std::os::unix::fs::symlink(env("MIEN_MODELS"), bench.at.join("home/models")).unwrap();
        bench
    }

    /// Without models.
    pub fn bare(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let at = std::env::temp_dir().join(format!("mien-{name}-{}-{n}", std::process::id()));
        let _ = fs::remove_dir_all(&at);
        fs::create_dir_all(at.join("home")).unwrap();
        Self { at }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    pub fn home(&self) -> PathBuf {
        self.at.join("home")
    }

    /// The program, in this folder and with this home.
    pub fn mien(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mien"));
        command.args(args).current_dir(&self.at).env("MIEN_HOME", self.home());
        command
    }

    /// Runs it and gives exit code, standard output, standard error.
    pub fn run(&self, args: &[&str]) -> Ran {
        self.mien(args).output().unwrap().into()
    }

    /// Enrols a source with consent to everything, from 2023 on for a hundred years.
    pub fn enrol(&self, name: &str, picture: &Path) {
        let ran = self.run(&[
            "source",
            "enrol",
            name,
            picture.to_str().unwrap(),
            "--subject",
            "s-1",
            "--purpose",
            "test",
            "--scope",
            "swap,reveal",
            "--days",
            "36500",
            "--clock",
            "1700000000",
        ]);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }

    /// Everything below the folder but the home, sorted.
    pub fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        list(&self.at, &self.at, &mut found);
        found.sort();
        found
    }
}

fn list(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        if name == "home" {
            continue;
        }
        if path.is_dir() { list(root, &path, found) } else { found.push(name) }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.at);
    }
}

/// What a run gave.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
    pub bytes: Vec<u8>,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            bytes: output.stdout,
        }
    }
}

impl Ran {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {} {}", self.out, self.err))
    }
}

/// How often what may be killed at any instant is killed: a tenth of what is promised, or as
/// `MIEN_KILLS` says.
pub fn kills() -> u32 {
    std::env::var("MIEN_KILLS").map_or(30, |n| n.parse().expect("MIEN_KILLS is a number"))
}

fn env(name: &str) -> PathBuf {
    std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set; tests/run sets it")).into()
}

/// A real picture of `MIEN_PICTURES`.
pub fn picture(name: &str) -> PathBuf {
    let path = env("MIEN_PICTURES").join(name);
    assert!(path.exists(), "{} is missing; tests/run fetches it", path.display());
    path
}

/// Pixels of a file.
pub fn load(path: &Path) -> Rgb {
    codec::decode(&fs::read(path).unwrap(), &codec::Bounds::default()).unwrap().rgb
}

/// Writes pixels by the ending of the name.
pub fn save(path: &Path, rgb: &Rgb) {
    let format = match path.extension().unwrap().to_str().unwrap() {
        "png" => FileFormat::Png,
        _ => FileFormat::Jpeg,
    };
    let bytes = codec::encode(rgb.view(), None, format, 95, &Metadata::default()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A face of the astronaut as a small picture: quick to process.
pub fn small_face(side: u32) -> Rgb {
    let whole = load(&picture("astronaut.png"));
    let crop = whole.view().crop(Roi { x: 130, y: 20, width: 200, height: 200 });
    let mut small = Rgb::filled(Size::new(side, side), [0; 3]);
    mien_pixels::resize::resize(crop, &mut small.view_mut());
    small
}

/// Mean absolute difference of two pictures inside a box.
pub fn difference(a: &Rgb, b: &Rgb, rect: [f32; 4]) -> f64 {
    assert_eq!(a.size(), b.size());
    let cut = |v: f32, most: u32| (v.max(0.0) as u32).min(most);
    let (x0, x1) = (cut(rect[0], a.size().width), cut(rect[2], a.size().width));
    let (y0, y1) = (cut(rect[1], a.size().height), cut(rect[3], a.size().height));
    let (mut sum, mut count) = (0.0, 0.0);
    for y in y0..y1 {
        for x in x0..x1 {
            for (p, q) in a.view().pixel(x, y).iter().zip(b.view().pixel(x, y)) {
                sum += f64::from(p.abs_diff(q));
                count += 1.0;
            }
        }
    }
    sum / f64::max(count, 1.0)
}
