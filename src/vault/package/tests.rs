//! Packages: what comes back, the tamper matrix, and what mutation can do to a container.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use mien_base::clock::Wall;
use mien_base::limits;
use proptest::prelude::*;

use super::*;
use crate::files::tests::Scratch;
use crate::keyslot::tests::device;
use crate::manifest::tests::manifest;
use crate::random::tests::Counted;
use crate::sign::tests::key;
use crate::trust::tests::{NOW, trusted};

/// A model of two whole chunks and a short one.
fn model(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A machine of which packages are made and opened: one signer, one device.
struct Bench {
    scratch: Scratch,
    trust: TrustStore,
}

impl Bench {
    fn new() -> Self {
        let mut trust = TrustStore::empty();
        trust.add(trusted(&key(1), &[KeyRole::Models])).unwrap();
        Self { scratch: Scratch::new(), trust }
    }

    fn path(&self) -> PathBuf {
        self.scratch.0.join("m.mienpkg")
    }

    fn write(&self, bytes: &[u8]) -> File {
        fs::write(self.path(), bytes).unwrap();
        File::open(self.path()).unwrap()
    }

    /// Everything that is checked, in order: the model, or why not.
    fn open(&self, bytes: &[u8], device: &DeviceKey, floor: u64) -> Result<Vec<u8>> {
        let rules = Rules { trust: &self.trust, program: Version(1, 0, 0), now: NOW };
        let package = Package::read(self.write(bytes), "it")?;
        let package = package.verify(&rules, |_| floor)?;
        let checked = package.check(device);
        let mut memory = File::from(package.open(device)?);
        let mut model = Vec::new();
        memory.read_to_end(&mut model).unwrap();
        checked.map(|()| model)
    }

    fn reason(&self, bytes: &[u8]) -> Option<Reason> {
        self.open(bytes, &device(1), 1).err().map(|error| error.reason().expect("a refusal"))
    }
}

fn packed(model: &[u8], change: impl FnOnce(&mut Manifest)) -> Vec<u8> {
    packed_by(model, &[&key(1)], change)
}

fn packed_by(model: &[u8], by: &[&KeyPair], change: impl FnOnce(&mut Manifest)) -> Vec<u8> {
    let mut manifest = manifest("m", model);
    change(&mut manifest);
    let mut out = Vec::new();
    let devices = [device(9).public(), device(1).public()];
    pack(&manifest, by, &devices, &mut &*model, &mut out, &mut Counted(0)).unwrap();
    out
}

/// Where the parts of a package begin: envelope, wraps, payload.
fn parts(package: &[u8]) -> (usize, usize, usize) {
    let size = u32::from_be_bytes(package[32..36].try_into().unwrap()) as usize;
    let wraps = 36 + size;
    let count = usize::from(u16::from_be_bytes(package[wraps..wraps + 2].try_into().unwrap()));
    (36, wraps + 2, wraps + 2 + count * WRAP)
}

#[test]
fn a_model_comes_back_for_each_device_that_it_was_packed_for() {
    let bench = Bench::new();
    for bytes in [1, 100, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5] {
        let model = model(bytes);
        let package = packed(&model, |_| {});
        assert!(bench.open(&package, &device(1), 1).unwrap() == model, "{bytes}");
        assert!(bench.open(&package, &device(9), 1).unwrap() == model, "{bytes}");
        let (.., payload) = parts(&package);
        assert_eq!((package.len() - payload) as u64, seal::sealed_bytes(bytes as u64));
    }
}

#[test]
fn every_bit_of_header_envelope_and_own_wrap_matters() {
    let bench = Bench::new();
    let package = packed(&model(300), |_| {});
    let (_, wraps, payload) = parts(&package);
    let foreign = wraps + 16..wraps + WRAP;
    for at in (0..payload).filter(|at| !foreign.contains(at)) {
        for bit in [0, 3, 7] {
            let mut bad = package.clone();
            bad[at] ^= 1 << bit;
            // The name of another device's entry is that device's loss.
            if (wraps..wraps + 16).contains(&at) {
                continue;
            }
            assert!(bench.reason(&bad).is_some(), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn who_signed_what_for_whom_is_refused_each_by_its_code() {
    let weights = model(100);
    let reason = |change: fn(&mut Manifest), trust: fn(&mut TrustStore), device: &DeviceKey| {
        let mut bench = Bench::new();
        trust(&mut bench.trust);
        let package = packed(&weights, change);
        bench.open(&package, device, 5).err().and_then(|error| error.reason())
    };
    let ours = device(1);
    let fresh: fn(&mut Manifest) = |m| m.security_version = 5;
    let id = || key(1).id();
    assert_eq!(id(), key(1).id());
    assert_eq!(reason(fresh, |_| {}, &ours), None);
    assert_eq!(reason(fresh, |_| {}, &device(2)), Some(Reason::WrongDevice));
    assert_eq!(reason(|m| m.security_version = 4, |_| {}, &ours), Some(Reason::RolledBack));
    assert_eq!(reason(|m| m.api += 1, |_| {}, &ours), Some(Reason::ApiVersion));
    assert_eq!(reason(|m| m.expires = Some(NOW), |_| {}, &ours), Some(Reason::ManifestExpired));
    assert_eq!(
        reason(|m| m.requires = Some(Version(1, 0, 1)), |_| {}, &ours),
        Some(Reason::ProgramTooOld)
    );
    let revoke: fn(&mut TrustStore) = |t| t.revoke(key(1).id(), Wall(1)).unwrap();
    assert_eq!(reason(fresh, revoke, &ours), Some(Reason::KeyRevoked));
    let expire: fn(&mut TrustStore) = |t| t.expire(key(1).id(), NOW).unwrap();
    assert_eq!(reason(fresh, expire, &ours), Some(Reason::KeyExpired));
    let consent: fn(&mut TrustStore) = |t| t.add(trusted(&key(1), &[KeyRole::Consent])).unwrap();
    assert_eq!(reason(fresh, consent, &ours), Some(Reason::KeyRole));
    let two: fn(&mut TrustStore) = |t| t.set_threshold(KeyRole::Models, 2).unwrap();
    assert_eq!(reason(fresh, two, &ours), Some(Reason::SignatureMissing));
    let nobody: fn(&mut TrustStore) = |t| *t = TrustStore::empty();
    assert_eq!(reason(fresh, nobody, &ours), Some(Reason::KeyUnknown));
    let bench = Bench::new();
    assert_eq!(bench.reason(&packed_by(&weights, &[], fresh)), Some(Reason::SignatureMissing));
}

#[test]
fn the_order_of_checks_is_bounds_signature_manifest_rollback_device_chunks() {
    let bench = Bench::new();
    let weights = model(100);
    // Everything is wrong; mending one thing after the other shows the next.
    let all: fn(&mut Manifest) = |m| {
        m.security_version = 0;
        m.api += 1;
    };
    let mut bad = packed_by(&weights, &[&key(2)], all);
    bad.push(0);
    assert_eq!(bench.open(&bad, &device(2), 1).unwrap_err().reason(), Some(Reason::TrailingBytes));
    bad.pop();
    let flip = bad.len() - 1;
    bad[flip] ^= 1;
    assert_eq!(bench.open(&bad, &device(2), 1).unwrap_err().reason(), Some(Reason::KeyUnknown));
    let mut bad = packed(&weights, all);
    let flip = bad.len() - 1;
    bad[flip] ^= 1;
    assert_eq!(bench.open(&bad, &device(2), 1).unwrap_err().reason(), Some(Reason::ApiVersion));
    let mut bad = packed(&weights, |m| m.security_version = 0);
    let flip = bad.len() - 1;
    bad[flip] ^= 1;
    assert_eq!(bench.open(&bad, &device(2), 1).unwrap_err().reason(), Some(Reason::RolledBack));
    assert_eq!(bench.open(&bad, &device(2), 0).unwrap_err().reason(), Some(Reason::WrongDevice));
    assert_eq!(bench.open(&bad, &device(1), 0).unwrap_err().reason(), Some(Reason::ChunkInvalid));
}

#[test]
fn who_knows_the_content_key_can_not_pass_other_weights_off_as_signed() {
    // Another device of the same package has its content key: it seals other weights under the
    // signed manifest. Each chunk then holds; the signed digest does not.
    let bench = Bench::new();
    let weights = model(100);
    let mut package = packed(&weights, |_| {});
    let (_, wraps, payload) = parts(&package);
    let header = Header::parse(package[..32].try_into().unwrap()).unwrap();
    let read = Package::read(bench.write(&package), "it").unwrap();
    let hash = read.manifest_hash();
    let wrap = Wrap::from_bytes(package[wraps..wraps + WRAP].try_into().unwrap());
    let stolen = wrap.open(&device(9), &hash).unwrap();
    let mut forged = [vec![0x41; 100], vec![0; TAG]].concat();
    let bound = [&header.to_bytes()[..], &hash].concat();
    stolen.stream(&header.prefix).seal(0, true, &bound, &mut forged).unwrap();
    package[payload..].copy_from_slice(&forged);
    assert_eq!(bench.reason(&package), Some(Reason::DigestMismatch));
}

#[test]
fn a_model_that_is_not_that_of_its_manifest_is_not_packed() {
    let weights = model(100);
    let reason = |given: &[u8]| {
        let devices = [device(1).public()];
        let made = manifest("m", &weights);
        pack(&made, &[&key(1)], &devices, &mut &*given, &mut Vec::new(), &mut Counted(0))
            .unwrap_err()
            .reason()
    };
    assert_eq!(reason(&weights[..99]), Some(Reason::SizeMismatch));
    assert_eq!(reason(&[&weights[..], &[0]].concat()), Some(Reason::SizeMismatch));
    assert_eq!(reason(&[0; 100]), Some(Reason::DigestMismatch));
}

#[test]
fn a_device_is_added_without_the_signing_key_and_the_payload_stays() {
    let bench = Bench::new();
    let weights = model(CHUNK + 9);
    let package = packed(&weights, |_| {});
    let rules = Rules { trust: &bench.trust, program: Version(1, 0, 0), now: NOW };
    let read = Package::read(bench.write(&package), "it").unwrap().verify(&rules, |_| 0).unwrap();
    let devices = [device(4).public(), device(5).public(), device(1).public()];
    let mut again = Vec::new();
    read.rewrap(&device(1), &devices, &mut Counted(7), &mut again).unwrap();
    assert!(bench.open(&again, &device(5), 1).unwrap() == weights);
    let error = bench.open(&again, &device(9), 1).unwrap_err();
    assert_eq!(error.reason(), Some(Reason::WrongDevice));
    assert!(again[parts(&again).2..] == package[parts(&package).2..]);
    assert!(again[..parts(&again).1 - 2] == package[..parts(&package).1 - 2]);
}

#[test]
fn nothing_of_the_model_stands_in_the_package() {
    let weights: Vec<u8> = (0..5000_u32).flat_map(u32::to_le_bytes).collect();
    let package = packed(&weights, |_| {});
    let known: std::collections::BTreeSet<&[u8]> = weights.chunks_exact(16).collect();
    assert!(package.windows(16).all(|part| !known.contains(part)));
}

#[test]
fn a_claim_of_a_gibibyte_on_a_sparse_file_is_refused_by_its_first_chunk() {
    let bench = Bench::new();
    let weights = model(50);
    let mut package = packed(&weights, |_| {});
    package[16..24].copy_from_slice(&limits::MODEL_FILE.to_be_bytes());
    let mut file = bench.write(&package);
    let whole = parts(&package).2 as u64 + seal::sealed_bytes(limits::MODEL_FILE);
    File::options().write(true).open(bench.path()).unwrap().set_len(whole).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let rules = Rules { trust: &bench.trust, program: Version(1, 0, 0), now: NOW };
    let refused = Package::read(file, "it").unwrap().verify(&rules, |_| 0).unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::SizeMismatch));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_model_comes_back(bytes in proptest::collection::vec(any::<u8>(), 1..5000), seed: u64) {
        let bench = Bench::new();
        let mut out = Vec::new();
        let (made, devices) = (manifest("m", &bytes), [device(1).public()]);
        pack(&made, &[&key(1)], &devices, &mut &*bytes, &mut out, &mut Counted(seed)).unwrap();
        prop_assert_eq!(bench.open(&out, &device(1), 1).unwrap(), bytes);
    }

    /// Mutations of a good package: never a panic, never other bytes than the model's.
    #[test]
    fn a_mutated_package_is_refused_or_gives_the_model(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..6)
    ) {
        let bench = Bench::new();
        let weights = model(700);
        let mut bytes = packed(&weights, |_| {});
        for (at, value, kind) in edits {
            let at = at.index(bytes.len().max(1));
            match kind {
                0 => if let Some(byte) = bytes.get_mut(at) { *byte = value },
                1 => if let Some(byte) = bytes.get_mut(at) { *byte ^= 1 << (value & 7) },
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let part = bytes[at..].iter().copied().take(usize::from(value)).collect::<Vec<_>>();
                    bytes.splice(at..at, part);
                }
            }
        }
        match bench.open(&bytes, &device(1), 1) {
            Ok(opened) => prop_assert_eq!(opened, weights),
            Err(error) => prop_assert!(error.reason().is_some(), "{error}"),
        }
    }

    /// The parsers alone, on anything.
    #[test]
    fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let bench = Bench::new();
        let _ = Envelope::parse(&bytes);
        let _ = Manifest::parse(&bytes);
        let whole = [&packed(b"w", |_| {})[..32], &bytes].concat();
        for part in [&bytes, &whole] {
            prop_assert!(Package::read(bench.write(part), "it").is_err());
        }
    }

    /// Manifests as JSON with values swapped for others: read again only as what was checked.
    #[test]
    fn a_mutated_manifest_is_refused_or_in_bounds(
        key in 0..16_usize,
        value in prop_oneof![
            Just(serde_json::Value::Null),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            "\\PC{0,80}".prop_map(Into::into),
            Just(serde_json::json!([])), Just(serde_json::json!({})),
        ],
    ) {
        let made = serde_json::from_slice::<serde_json::Value>(&manifest("m", b"w").to_json());
        let mut made = made.unwrap();
        let keys: Vec<String> = made.as_object().unwrap().keys().cloned().collect();
        made[&keys[key % keys.len()]] = value;
        if let Ok(read) = Manifest::parse(&serde_json::to_vec(&made).unwrap()) {
            prop_assert!(read.check().is_ok());
            prop_assert!(read.bytes <= limits::MODEL_FILE);
        }
    }
}
