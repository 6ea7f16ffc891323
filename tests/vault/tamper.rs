//! What can be done to a package, row by row: each is refused by its own code, at `verify` and at
//! `install`, each refusal stands in the record, and none is found out by allocating what it claims.

#![allow(unsafe_code, clippy::unwrap_used)] // A counting allocator; helpers only serve the test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mien_base::clock::{ManualClock, Wall};
use mien_base::limits;
use mien_base::model::{Family, Role};
use mien_vault::audit::Deed;
use mien_vault::install::Packages;
use mien_vault::keyslot::{DeviceKey, Keeper, KeyFile};
use mien_vault::manifest::{API, Bounds, Contract, Manifest, Precision, Version};
use mien_vault::package;
use mien_vault::random::SystemRandom;
use mien_vault::refusal::Reason;
use mien_vault::seal::{self, CHUNK, TAG, WRAP};
use mien_vault::sign::KeyPair;
use mien_vault::trust::{KeyRole, TrustStore, TrustedKey};
use mien_vault::{Home, digest};
use serde_json::Value;

/// What checking a package may ask of the allocator at once, whatever it claims: its signed and its
/// wrapped part at their bounds, in a few forms, and two chunks.
const MOST: usize = 4 * limits::ENVELOPE + 2 * limits::WRAPS * WRAP + 2 * (CHUNK + TAG);

struct Counting;

thread_local! {
    /// What this thread holds now, and held at its most.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    // A thread that ends has nothing to count any more.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: passes everything on to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as asked.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as asked.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` gives, and how much more than before this thread held at its most.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let (before, _) = HELD.get();
    HELD.set((before, before));
    let done = work();
    (done, (HELD.get().1 - before).unsigned_abs())
}

const NOW: Wall = Wall(1_800_000_000);

/// A folder that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let at = std::env::temp_dir().join(format!("mien-tamper-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&at);
        fs::create_dir(&at).unwrap();
        Self(at)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn signer(n: u8) -> KeyPair {
    KeyPair::from_seed(&[n; 32])
}

fn device(n: u8) -> DeviceKey {
    DeviceKey::from_secret(&[n; 32], Keeper::File).unwrap()
}

fn trusted(key: &KeyPair, role: KeyRole) -> TrustedKey {
    TrustedKey {
        public: key.public(),
        name: "shop".to_owned(),
        roles: [role].into(),
        added: Wall(1),
        expires: None,
        revoked: None,
    }
}

/// A model of two whole chunks and a short one.
fn model() -> Vec<u8> {
    (0..2 * CHUNK as u32 + 5).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A package of `model` for devices 9 and 1, signed by `by`.
fn packed(model: &[u8], by: &[&KeyPair], change: impl FnOnce(&mut Manifest)) -> Vec<u8> {
    let mut manifest = Manifest {
        id: "m".parse().unwrap(),
        role: Role::Detector,
        family: Family::CenterFace,
        version: Version(1, 0, 0),
        api: API,
        security_version: 5,
        sha256: digest::of(model),
        bytes: model.len() as u64,
        precision: Precision::Fp32,
        bounds: Bounds::default(),
        licence: "MIT".to_owned(),
        commercial: true,
        origin: "made for a test".to_owned(),
        created: Wall(1_700_000_000),
        expires: None,
        requires: None,
        contract: Contract::default(),
    };
    change(&mut manifest);
    let (mut out, devices) = (Vec::new(), [device(9).public(), device(1).public()]);
    package::pack(&manifest, by, &devices, &mut &*model, &mut out, &mut SystemRandom).unwrap();
    out
}

/// A machine with device key 1 that trusts signer 1 for models.
struct Machine {
    scratch: Scratch,
    home: Home,
    packages: Packages,
}

impl Machine {
    fn new(name: &str, key: u8) -> Self {
        let scratch = Scratch::new(name);
        let home = Home::at(&scratch.0.join("home"));
        KeyFile::of(&home).store(&[key; 32]).unwrap();
        let packages = Packages::new(&home, Arc::new(ManualClock::at(NOW)));
        let machine = Self { scratch, home, packages };
        machine.trust().add(trusted(&signer(1), KeyRole::Models)).unwrap();
        machine
    }

    fn trust(&self) -> TrustStore {
        TrustStore::open(&self.home).unwrap()
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.scratch.0.join("it.mienpkg");
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Refuses a package by `expected`, both ways, in the record each time, within the bound.
    fn refuses(&self, path: &Path, expected: Reason, what: &str) {
        for install in [false, true] {
            let mut log: Vec<(Deed, Value)> = Vec::new();
            let (done, peak) = counted(|| {
                if install {
                    self.packages.install(path, &mut log).map(drop)
                } else {
                    self.packages.verify(path, &mut log).map(drop)
                }
            });
            let refused = done.expect_err(what);
            assert_eq!(refused.reason(), Some(expected), "{what}: {refused}");
            let told: Vec<_> =
                log.iter().map(|(deed, body)| (*deed, body["reason"].as_str())).collect();
            assert_eq!(told, [(Deed::Refused, Some(expected.code()))], "{what}");
            assert!(peak <= MOST, "{what}: {peak} bytes, at most {MOST}");
            assert!(peak > 0, "{what}: what is asked for is counted");
        }
        assert_eq!(self.packages.list().unwrap().len(), 0, "{what}");
    }
}

/// Where the parts of a package begin: envelope, wraps, payload.
fn parts(package: &[u8]) -> (usize, usize, usize) {
    let size = u32::from_be_bytes(package[32..36].try_into().unwrap()) as usize;
    let wraps = 36 + size;
    let count = usize::from(u16::from_be_bytes(package[wraps..wraps + 2].try_into().unwrap()));
    (36, wraps + 2, wraps + 2 + count * WRAP)
}

fn put(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes[at..at + with.len()].copy_from_slice(with);
}

fn chunk(bytes: &[u8], index: usize) -> Range<usize> {
    let from = parts(bytes).2 + index * (CHUNK + TAG);
    from..(from + CHUNK + TAG).min(bytes.len())
}

/// One thing that is done to a good package, and the code of its refusal.
type Tamper = (&'static str, fn(&mut Vec<u8>), Reason);

const MATRIX: &[Tamper] = &[
    ("empty", |b| b.clear(), Reason::NotAPackage),
    ("magic", |b| b[0] ^= 1, Reason::NotAPackage),
    ("a cut header", |b| b.truncate(31), Reason::Truncated),
    ("format 0", |b| put(b, 8, &[0, 0]), Reason::FormatUnknown),
    ("format 2", |b| put(b, 8, &[0, 2]), Reason::FormatUnknown),
    ("zeros that are not", |b| b[11] = 1, Reason::HeaderMalformed),
    ("last zero that is not", |b| b[31] = 1, Reason::HeaderMalformed),
    ("chunk size", |b| b[15] ^= 1, Reason::HeaderMalformed),
    ("no bytes", |b| put(b, 16, &[0; 8]), Reason::HeaderMalformed),
    ("one byte less", |b| b[23] -= 1, Reason::TrailingBytes),
    ("one byte more", |b| b[23] += 1, Reason::Truncated),
    ("all bytes there are", |b| put(b, 16, &[255; 8]), Reason::TooLarge),
    (
        "beyond the bound",
        |b| {
            put(b, 16, &(limits::MODEL_FILE + 1).to_be_bytes());
        },
        Reason::TooLarge,
    ),
    ("nonce prefix", |b| b[24] ^= 1, Reason::ChunkInvalid),
    ("envelope of 4 GiB", |b| put(b, 32, &[255; 4]), Reason::TooLarge),
    (
        "envelope beyond the file",
        |b| {
            b.truncate(40);
            put(b, 32, &1000_u32.to_be_bytes());
        },
        Reason::Truncated,
    ),
    ("no envelope", |b| put(b, 32, &[0; 4]), Reason::EnvelopeMalformed),
    ("envelope one shorter", |b| b[35] -= 1, Reason::EnvelopeMalformed),
    ("a cut envelope", |b| b.truncate(100), Reason::Truncated),
    (
        "a space in the envelope",
        |b| {
            b.insert(37, b' ');
            let size = u32::from_be_bytes(b[32..36].try_into().unwrap()) + 1;
            put(b, 32, &size.to_be_bytes());
        },
        Reason::EnvelopeMalformed,
    ),
    (
        "payload type",
        |b| {
            let at = b.windows(5).position(|w| w == b"model").unwrap();
            b[at] = b'n';
        },
        Reason::PayloadType,
    ),
    (
        "manifest byte",
        |b| {
            let at = b.windows(11).position(|w| w == b"\"payload\":\"").unwrap() + 40;
            b[at] = if b[at] == b'A' { b'B' } else { b'A' };
        },
        Reason::SignatureInvalid,
    ),
    (
        "signature",
        |b| {
            let at = b.windows(7).position(|w| w == b"\"sig\":\"").unwrap() + 20;
            b[at] = if b[at] == b'A' { b'B' } else { b'A' };
        },
        Reason::SignatureInvalid,
    ),
    (
        "another key's name",
        |b| {
            let at = b.windows(9).position(|w| w == b"\"keyid\":\"").unwrap() + 9;
            b[at] = if b[at] == b'a' { b'b' } else { b'a' };
        },
        Reason::KeyUnknown,
    ),
    (
        "65,535 devices",
        |b| {
            let at = parts(b).1 - 2;
            put(b, at, &[255; 2]);
        },
        Reason::TooLarge,
    ),
    (
        "one device more",
        |b| {
            let at = parts(b).1 - 1;
            b[at] += 1;
        },
        Reason::Truncated,
    ),
    (
        "one device less",
        |b| {
            let at = parts(b).1 - 1;
            b[at] -= 1;
        },
        Reason::TrailingBytes,
    ),
    (
        "one device twice",
        |b| {
            let at = parts(b).1;
            b.copy_within(at + WRAP..at + 2 * WRAP, at);
        },
        Reason::WrapsMalformed,
    ),
    (
        "our entry's name",
        |b| {
            let at = parts(b).1 + WRAP;
            b[at] ^= 1;
        },
        Reason::WrongDevice,
    ),
    (
        "our entry's key",
        |b| {
            let at = parts(b).1 + WRAP + 16;
            b[at] ^= 1;
        },
        Reason::WrapInvalid,
    ),
    (
        "our entry's content key",
        |b| {
            let at = parts(b).1 + 2 * WRAP - 1;
            b[at] ^= 1;
        },
        Reason::WrapInvalid,
    ),
    (
        "another's entry as ours",
        |b| {
            let at = parts(b).1;
            b.copy_within(at + 16..at + WRAP, at + WRAP + 16);
        },
        Reason::WrapInvalid,
    ),
    (
        "a payload byte",
        |b| {
            let at = chunk(b, 1).start + 77;
            b[at] ^= 1;
        },
        Reason::ChunkInvalid,
    ),
    (
        "a tag",
        |b| {
            let at = chunk(b, 0).end - 1;
            b[at] ^= 1;
        },
        Reason::ChunkInvalid,
    ),
    (
        "two chunks swapped",
        |b| {
            let (a, c) = (chunk(b, 0), chunk(b, 1));
            let first = b[a.clone()].to_vec();
            b.copy_within(c.clone(), a.start);
            put(b, c.start, &first);
        },
        Reason::ChunkInvalid,
    ),
    (
        "a chunk repeated",
        |b| {
            let (a, c) = (chunk(b, 0), chunk(b, 1));
            b.copy_within(a, c.start);
        },
        Reason::ChunkInvalid,
    ),
    (
        "a chunk dropped",
        |b| {
            b.drain(chunk(b, 1));
        },
        Reason::Truncated,
    ),
    (
        "a chunk dropped, and the size with it",
        |b| {
            b.drain(chunk(b, 1));
            let bytes = u64::from_be_bytes(b[16..24].try_into().unwrap()) - CHUNK as u64;
            put(b, 16, &bytes.to_be_bytes());
        },
        Reason::SizeMismatch,
    ),
    (
        "the last byte gone",
        |b| {
            b.pop();
        },
        Reason::Truncated,
    ),
    ("half gone", |b| b.truncate(b.len() / 2), Reason::Truncated),
    ("a byte appended", |b| b.push(0), Reason::TrailingBytes),
    ("itself appended", |b| b.extend(b.clone()), Reason::TrailingBytes),
];

#[test]
fn whatever_is_done_to_a_package_is_refused_by_its_code_recorded_and_cheap() {
    let machine = Machine::new("matrix", 1);
    let good = packed(&model(), &[&signer(1)], |_| {});
    for (what, tamper, expected) in MATRIX {
        let mut bad = good.clone();
        tamper(&mut bad);
        machine.refuses(&machine.file(&bad), *expected, what);
    }
    // The same package untouched is taken: the matrix can fail. It needs no more either.
    let path = machine.file(&good);
    let ((), peak) = counted(|| {
        machine.packages.verify(&path, &mut Vec::new()).unwrap();
        machine.packages.install(&path, &mut Vec::new()).unwrap();
    });
    assert!(peak <= MOST, "{peak}");
}

#[test]
fn who_signed_what_for_whom_is_refused_by_its_code_recorded_and_cheap() {
    /// What is signed, what is done to the machine, and the code.
    type Row = (&'static str, fn(&mut Manifest), fn(&Machine), Reason);
    let rows: &[Row] = &[
        ("another interface", |m| m.api += 1, |_| {}, Reason::ApiVersion),
        ("expired", |m| m.expires = Some(NOW), |_| {}, Reason::ManifestExpired),
        (
            "for a later program",
            |m| m.requires = Some(Version(999, 0, 0)),
            |_| {},
            Reason::ProgramTooOld,
        ),
        (
            "a revoked key",
            |_| {},
            |m| m.trust().revoke(signer(1).id(), Wall(1)).unwrap(),
            Reason::KeyRevoked,
        ),
        (
            "an expired key",
            |_| {},
            |m| m.trust().expire(signer(1).id(), NOW).unwrap(),
            Reason::KeyExpired,
        ),
        (
            "a key for consent",
            |_| {},
            |m| m.trust().add(trusted(&signer(1), KeyRole::Consent)).unwrap(),
            Reason::KeyRole,
        ),
        (
            "two signatures asked",
            |_| {},
            |m| m.trust().set_threshold(KeyRole::Models, 2).unwrap(),
            Reason::SignatureMissing,
        ),
        (
            "not for commerce",
            |m| m.commercial = false,
            |m| fs::write(m.home.data().join("vault.toml"), "commercial = true").unwrap(),
            Reason::LicenceForbids,
        ),
    ];
    let weights = b"weights";
    for (what, change, prepare, expected) in rows {
        let machine = Machine::new("signed", 1);
        prepare(&machine);
        let path = machine.file(&packed(weights, &[&signer(1)], change));
        machine.refuses(&path, *expected, what);
    }
    let machine = Machine::new("signed", 1);
    let path = machine.file(&packed(weights, &[], |_| {}));
    machine.refuses(&path, Reason::SignatureMissing, "no signature");
    let path = machine.file(&packed(weights, &[&signer(2)], |_| {}));
    machine.refuses(&path, Reason::KeyUnknown, "a stranger's signature");
    let other = Machine::new("device", 2);
    let path = other.file(&packed(weights, &[&signer(1)], |_| {}));
    other.refuses(&path, Reason::WrongDevice, "another device");
    // A counter below one that was installed once, after that one was removed.
    let path = machine.file(&packed(weights, &[&signer(1)], |_| {}));
    machine.packages.install(&path, &mut Vec::new()).unwrap();
    machine.packages.remove(&"m".parse().unwrap(), None, &mut Vec::new()).unwrap();
    let path = machine.file(&packed(weights, &[&signer(1)], |m| m.security_version = 4));
    machine.refuses(&path, Reason::RolledBack, "an old counter");
}

#[test]
fn a_claim_of_a_gibibyte_on_a_sparse_file_is_refused_before_any_of_it_is_allocated() {
    let machine = Machine::new("sparse", 1);
    let mut package = packed(b"weights", &[&signer(1)], |_| {});
    put(&mut package, 16, &limits::MODEL_FILE.to_be_bytes());
    let path = machine.file(&package);
    let whole = parts(&package).2 as u64 + seal::sealed_bytes(limits::MODEL_FILE);
    File::options().write(true).open(&path).unwrap().set_len(whole).unwrap();
    machine.refuses(&path, Reason::SizeMismatch, "a sparse gibibyte");
}

#[test]
fn what_is_refused_when_it_should_serve_again_is_recorded_too() {
    let machine = Machine::new("again", 1);
    let mut log: Vec<(Deed, Value)> = Vec::new();
    for version in [Version(1, 0, 0), Version(1, 1, 0)] {
        let package = packed(b"weights", &[&signer(1)], |m| m.version = version);
        machine.packages.install(&machine.file(&package), &mut log).unwrap();
    }
    let id = "m".parse().unwrap();
    machine.packages.activate(&id, Version(1, 1, 0), None, &mut log).unwrap();
    let old = machine.packages.list().unwrap().remove(0);
    let mut bytes = fs::read(&old.path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&old.path, bytes).unwrap();
    log.clear();
    let refused = machine.packages.rollback(&id, &mut log).unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::ChunkInvalid));
    assert_eq!((log[0].0, log[0].1["reason"].as_str()), (Deed::Refused, Some("ChunkInvalid")));
    assert_eq!(log.len(), 1);
}
