//! Writes good packages and manifests that fuzzing begins with: `fuzz-seeds FOLDER`.

#![allow(clippy::unwrap_used)] // Nobody but fuzz/run runs it.

use std::fs;
use std::path::PathBuf;

use mien_base::clock::Wall;
use mien_base::model::{Family, Role};
use mien_vault::digest;
use mien_vault::keyslot::{DeviceKey, Keeper};
use mien_vault::manifest::{API, Bounds, Contract, Manifest, PAYLOAD_TYPE, Precision, Version};
use mien_vault::package;
use mien_vault::random::SystemRandom;
use mien_vault::sign::{Envelope, KeyPair};

fn main() {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("a folder"));
    let signer = KeyPair::from_seed(&[1; 32]);
    for (n, devices) in [(0_u32, 0), (1, 1), (2, 3)] {
        let weights = vec![7; 100 * n as usize + 1];
        let manifest = Manifest {
            id: "m".parse().unwrap(),
            role: Role::Detector,
            family: Family::CenterFace,
            version: Version(1, 0, n),
            api: API,
            security_version: 1,
            sha256: digest::of(&weights),
            bytes: weights.len() as u64,
            precision: Precision::Fp32,
            bounds: Bounds::default(),
            licence: "MIT".to_owned(),
            commercial: true,
            origin: "made to be fuzzed".to_owned(),
            created: Wall(1),
            expires: (n > 0).then_some(Wall(u64::MAX >> 20)),
            requires: None,
            contract: Contract::default(),
        };
        let devices: Vec<_> = (1..=devices)
            .map(|n| DeviceKey::from_secret(&[n; 32], Keeper::File).unwrap().public())
            .collect();
        let mut sealed = Vec::new();
        let input = &mut &*weights;
        package::pack(&manifest, &[&signer], &devices, input, &mut sealed, &mut SystemRandom)
            .unwrap();
        let mut envelope = Envelope::new(PAYLOAD_TYPE, manifest.to_json());
        envelope.sign(&signer);
        for (kind, name, bytes) in [
            ("package", "package", sealed),
            ("manifest", "manifest", manifest.to_json()),
            ("manifest", "envelope", envelope.to_json()),
        ] {
            let folder = folder.join(kind);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("{name}-{n}")), bytes).unwrap();
        }
    }
}
