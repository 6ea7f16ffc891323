//! Installing, activating, going back, removing: what holds whatever happens in between.

use std::fs::{self, File};
use std::io::Read as _;

use mien_base::clock::ManualClock;
use serde_json::Value;

use super::*;
use crate::files::tests::Scratch;
use crate::keyslot::{Keeper, KeyFile};
use crate::manifest::tests::manifest;
use crate::random::tests::Counted;
use crate::seal::CHUNK;
use crate::sign::tests::key;
use crate::trust::tests::{NOW, trusted};

type Log = Vec<(Deed, Value)>;

struct Bench {
    scratch: Scratch,
    packages: Packages,
}

impl Bench {
    /// A machine with a key that trusts key 1 for models.
    fn new() -> Self {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0.join("home"));
        KeyFile::of(&home).store(&[1; 32]).unwrap();
        let mut trust = TrustStore::open(&home).unwrap();
        trust.add(trusted(&key(1), &[KeyRole::Models])).unwrap();
        let packages = Packages::new(&home, Arc::new(ManualClock::at(NOW)));
        Self { scratch, packages }
    }

    /// A package file of `weights`, for this machine.
    fn pack(&self, version: &str, security: u64, weights: &[u8]) -> PathBuf {
        self.pack_as(version, weights, |m| m.security_version = security)
    }

    fn pack_as(
        &self,
        version: &str,
        weights: &[u8],
        change: impl FnOnce(&mut Manifest),
    ) -> PathBuf {
        let mut made = manifest("m", weights);
        made.version = version.parse().unwrap();
        change(&mut made);
        let device = DeviceKey::from_secret(&[1; 32], Keeper::File).unwrap();
        let mut out = Vec::new();
        let devices = [device.public()];
        package::pack(&made, &[&key(1)], &devices, &mut &*weights, &mut out, &mut Counted(0))
            .unwrap();
        let path = self.scratch.0.join(format!("{version}.{ENDING}"));
        fs::write(&path, out).unwrap();
        path
    }

    /// The bytes that serve as `m`.
    fn serves(&self) -> Option<Vec<u8>> {
        let package = self.packages.active(&id()).unwrap()?;
        let mut file = File::from(package.open(self.packages.device().unwrap()).unwrap());
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        Some(bytes)
    }
}

fn id() -> ModelId {
    "m".parse().unwrap()
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

#[test]
fn the_first_version_serves_at_once_and_the_next_when_it_is_activated() {
    let (bench, mut log) = (Bench::new(), Log::new());
    assert_eq!(bench.serves(), None);
    bench.packages.install(&bench.pack("1.0.0", 1, b"old"), &mut log).unwrap();
    bench.packages.install(&bench.pack("1.1.0", 1, b"new"), &mut log).unwrap();
    assert_eq!(bench.serves().unwrap(), b"old");
    bench.packages.activate(&id(), version("1.1.0"), None, &mut log).unwrap();
    assert_eq!(bench.serves().unwrap(), b"new");
    bench.packages.rollback(&id(), &mut log).unwrap();
    assert_eq!(bench.serves().unwrap(), b"old");
    let deeds: Vec<Deed> = log.iter().map(|(deed, _)| *deed).collect();
    let (install, activate) = (Deed::ModelInstall, Deed::ModelActivate);
    assert_eq!(deeds, [install, activate, install, activate, activate]);
}

#[test]
fn what_is_refused_leaves_the_old_one_serving_and_an_audit_entry_with_its_code() {
    let (bench, mut log) = (Bench::new(), Log::new());
    bench.packages.install(&bench.pack("1.0.0", 5, b"old"), &mut log).unwrap();
    let older = bench.pack("2.0.0", 4, b"older");
    let error = bench.packages.install(&older, &mut log).unwrap_err();
    assert_eq!(error.reason(), Some(Reason::RolledBack));
    let broken = bench.pack("2.0.1", 5, b"broken");
    let mut bytes = fs::read(&broken).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&broken, bytes).unwrap();
    let error = bench.packages.install(&broken, &mut log).unwrap_err();
    assert_eq!(error.reason(), Some(Reason::ChunkInvalid));
    let codes: Vec<&str> = log
        .iter()
        .filter(|(deed, _)| *deed == Deed::Refused)
        .map(|(_, body)| body["reason"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["RolledBack", "ChunkInvalid"]);
    assert_eq!(bench.serves().unwrap(), b"old");
    assert_eq!(bench.packages.list().unwrap().len(), 1);
    let incoming = bench.scratch.0.join("home/packages/incoming");
    assert_eq!(fs::read_dir(incoming).unwrap().count(), 0);
}

#[test]
fn the_floor_outlives_going_back_and_removing() {
    let (bench, mut log) = (Bench::new(), Log::new());
    let old = bench.pack("1.0.0", 1, b"old");
    bench.packages.install(&old, &mut log).unwrap();
    bench.packages.install(&bench.pack("1.1.0", 2, b"new"), &mut log).unwrap();
    bench.packages.activate(&id(), version("1.1.0"), None, &mut log).unwrap();
    let refused = bench.packages.rollback(&id(), &mut log).unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::RolledBack));
    bench.packages.remove(&id(), None, &mut log).unwrap();
    assert_eq!(bench.serves(), None);
    let refused = bench.packages.install(&old, &mut log).unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::RolledBack));
}

#[test]
fn an_install_that_was_cut_off_goes_on_where_it_stopped() {
    let (bench, mut log) = (Bench::new(), Log::new());
    let path = bench.pack("1.0.0", 1, &vec![7; 3 * CHUNK]);
    let package = Packages::read(&path).unwrap();
    let part = bench.scratch.0.join("home/packages/incoming");
    files::private_dir(&part).unwrap();
    let part = part.join(format!("{}.part", package.fingerprint()));
    let whole = fs::read(&path).unwrap();
    // Right bytes are taken up, wrong ones of the same place are noticed and copied anew.
    for start in [whole[..CHUNK].to_vec(), vec![0; CHUNK], [&whole[..], &[0; 9]].concat()] {
        fs::write(&part, start).unwrap();
        bench.packages.install(&path, &mut log).unwrap();
        assert_eq!(bench.serves().unwrap().len(), 3 * CHUNK);
        assert!(!part.exists());
        bench.packages.remove(&id(), None, &mut log).unwrap();
    }
}

#[test]
fn versions_older_than_the_one_before_are_let_go() {
    let (bench, mut log) = (Bench::new(), Log::new());
    for (text, weights) in [("1.0.0", b"a"), ("1.1.0", b"b"), ("1.2.0", b"c")] {
        bench.packages.install(&bench.pack(text, 1, weights), &mut log).unwrap();
        bench.packages.activate(&id(), version(text), None, &mut log).unwrap();
    }
    let kept: Vec<_> =
        bench.packages.list().unwrap().into_iter().map(|i| i.manifest.version).collect();
    assert_eq!(kept, [version("1.1.0"), version("1.2.0")]);
}

#[test]
fn what_serves_is_not_removed_alone() {
    let (bench, mut log) = (Bench::new(), Log::new());
    bench.packages.install(&bench.pack("1.0.0", 1, b"a"), &mut log).unwrap();
    let refused = bench.packages.remove(&id(), Some(version("1.0.0")), &mut log).unwrap_err();
    assert!(refused.to_string().contains("serves"), "{refused}");
    assert!(bench.packages.remove(&id(), Some(version("3.0.0")), &mut log).is_err());
}

#[test]
fn a_package_under_another_version_s_name_does_not_serve() {
    let (bench, mut log) = (Bench::new(), Log::new());
    bench.packages.install(&bench.pack("1.0.0", 1, b"a"), &mut log).unwrap();
    fs::copy(bench.pack("0.9.0", 1, b"z"), bench.packages.path(&id(), version("1.0.0"))).unwrap();
    assert!(bench.packages.active(&id()).is_err());
}

#[test]
fn an_int8_model_serves_only_when_it_was_measured_within_its_bounds() {
    let (bench, mut log) = (Bench::new(), Log::new());
    let path = bench.pack_as("1.0.0", b"int8", |m| {
        m.precision = crate::manifest::Precision::Int8;
        m.bounds.cosine = Some(0.98);
    });
    bench.packages.install(&path, &mut log).unwrap();
    assert_eq!(bench.serves(), None);
    let mut activate = |cosine: Option<f32>| {
        let measured = cosine.map(|c| Bounds { cosine: Some(c), ..Bounds::default() });
        let done = bench.packages.activate(&id(), version("1.0.0"), measured.as_ref(), &mut log);
        done.err().and_then(|error| error.reason())
    };
    assert_eq!(activate(None), Some(Reason::BoundsBroken));
    assert_eq!(activate(Some(0.97)), Some(Reason::BoundsBroken));
    assert_eq!(activate(Some(0.985)), None);
    assert_eq!(bench.serves().unwrap(), b"int8");
    assert_eq!(log.iter().filter(|(deed, _)| *deed == Deed::Refused).count(), 2);
}

#[test]
fn an_audit_log_that_fails_stops_the_deed() {
    struct Full;
    impl AuditSink for Full {
        fn append(&mut self, _: Deed, _: Value) -> std::io::Result<()> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
    }
    let bench = Bench::new();
    let path = bench.pack("1.0.0", 1, b"a");
    assert!(matches!(bench.packages.install(&path, &mut Full), Err(Error::Audit { .. })));
    assert_eq!(bench.serves(), None);
    assert!(bench.packages.list().unwrap().is_empty());
}

#[test]
fn a_model_is_adopted_for_this_machine_and_for_no_other() {
    let (bench, mut log) = (Bench::new(), Log::new());
    let made = manifest("m", b"weights");
    let adopted =
        bench.packages.adopt(made.clone(), &mut &b"weights"[..], &mut Counted(1), &mut log);
    assert_eq!(adopted.unwrap().version, version("1.0.0"));
    assert_eq!(bench.serves().unwrap(), b"weights");
    let other = DeviceKey::from_secret(&[2; 32], Keeper::File).unwrap();
    let package = bench.packages.active(&id()).unwrap().unwrap();
    assert_eq!(package.open(&other).unwrap_err().reason(), Some(Reason::WrongDevice));
    // Other weights of the same name: the next version, which then serves.
    let made = Manifest { sha256: crate::digest::of(b"weightz"), ..made };
    bench.packages.adopt(made, &mut &b"weightz"[..], &mut Counted(2), &mut log).unwrap();
    assert_eq!(bench.serves().unwrap(), b"weightz");
    assert_eq!(bench.packages.slots().unwrap().slot(&id()).active, Some(version("1.0.1")));
}

#[test]
fn a_licence_that_forbids_commerce_is_refused_where_it_is_commerce() {
    let (bench, mut log) = (Bench::new(), Log::new());
    let path = bench.pack_as("1.0.0", b"a", |m| m.commercial = false);
    bench.packages.install(&path, &mut log).unwrap();
    fs::write(bench.scratch.0.join("home/vault.toml"), "commercial = true\n").unwrap();
    let refused = bench.packages.active(&id()).unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::LicenceForbids));
    bench.packages.remove(&id(), None, &mut log).unwrap();
    let refused = bench.packages.install(&path, &mut log).unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::LicenceForbids));
}

#[test]
fn the_newest_version_of_full_precision_stays_for_int8_ones_to_be_measured_by() {
    use crate::manifest::Precision;
    let (bench, mut log) = (Bench::new(), Log::new());
    bench.packages.install(&bench.pack("1.0.0", 1, b"full"), &mut log).unwrap();
    let good = Bounds { cosine: Some(0.9), ..Bounds::default() };
    for number in ["1.1.0", "1.2.0", "1.3.0"] {
        let path = bench.pack_as(number, number.as_bytes(), |m| {
            m.precision = Precision::Int8;
            m.bounds = good;
        });
        bench.packages.install(&path, &mut log).unwrap();
        bench.packages.activate(&id(), version(number), Some(&good), &mut log).unwrap();
    }
    let kept: Vec<String> =
        bench.packages.list().unwrap().iter().map(|i| i.manifest.version.to_string()).collect();
    assert_eq!(kept, ["1.0.0", "1.2.0", "1.3.0"]);
}
