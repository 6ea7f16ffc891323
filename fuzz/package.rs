//! Any bytes as a package: refused with a reason, or whole. `fuzz/run package` runs it.

#![no_main]
#![allow(clippy::unwrap_used)] // A panic is what is looked for.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use libfuzzer_sys::fuzz_target;
use mien_base::clock::Wall;
use mien_vault::keyslot::{DeviceKey, Keeper};
use mien_vault::manifest::Version;
use mien_vault::package::{Package, Rules};
use mien_vault::sign::KeyPair;
use mien_vault::trust::{KeyRole, TrustStore, TrustedKey};
use rustix::fs::{MemfdFlags, memfd_create};

fuzz_target!(|bytes: &[u8]| {
    let file = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC).unwrap());
    file.write_all_at(bytes, 0).unwrap();
    let package = match Package::read(file, "it") {
        Ok(package) => package,
        Err(error) => return assert!(error.reason().is_some(), "{error}"),
    };
    let _ = package.claims();
    // Signer 1 is trusted, as the seeds' is: what holds is opened.
    let mut trust = TrustStore::empty();
    let key = TrustedKey {
        public: KeyPair::from_seed(&[1; 32]).public(),
        name: "seed".to_owned(),
        roles: [KeyRole::Models].into(),
        added: Wall(0),
        expires: None,
        revoked: None,
    };
    trust.add(key).unwrap();
    let rules = Rules { trust: &trust, program: Version(1, 0, 0), now: Wall(1) };
    let verified = match package.verify(&rules, |_| 0) {
        Ok(verified) => verified,
        Err(error) => return assert!(error.reason().is_some(), "{error}"),
    };
    let device = DeviceKey::from_secret(&[1; 32], Keeper::File).unwrap();
    match (verified.check(&device), verified.open(&device)) {
        (Ok(()), Ok(_)) => {}
        (Err(error), _) | (Ok(()), Err(error)) => assert!(error.reason().is_some(), "{error}"),
    }
});
