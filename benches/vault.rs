//! Opening a package against what the cipher can do: `cargo bench -p mien-vault`.
//!
//! Prints MB/s of opening a 500 MB package into sealed memory (CPU time, best of five), what
//! `openssl speed` gives for AES-256-GCM in chunks of a MiB on the same machine, their ratio, and
//! the peak memory of this process as a multiple of the model.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs::File;
use std::io::Read;
use std::process::Command;

use mien_base::clock::Wall;
use mien_vault::keyslot::{DeviceKey, Keeper};
use mien_vault::manifest::{API, Bounds, Contract, Manifest, Precision, Version};
use mien_vault::package::{self, Package, Rules};
use mien_vault::random::SystemRandom;
use mien_vault::sign::KeyPair;
use mien_vault::trust::{KeyRole, TrustStore, TrustedKey};

const BYTES: u64 = 500 << 20;

/// Bytes that nobody could compress, made as they are read.
struct Noise(u64);

impl Read for Noise {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        for chunk in into.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            chunk.copy_from_slice(&self.0.to_le_bytes()[..chunk.len()]);
        }
        Ok(into.len())
    }
}

fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// User and system time of this process, in seconds.
fn cpu() -> f64 {
    let usage = std::fs::read_to_string("/proc/self/stat").unwrap();
    let mut fields = usage.rsplit(')').next().unwrap().split_whitespace().skip(11);
    let mut ticks = || fields.next().unwrap().parse::<f64>().unwrap();
    (ticks() + ticks()) / 100.0
}

/// MB/s of `openssl speed` for blocks of a MiB, by the CPU's clock.
fn openssl() -> Option<f64> {
    let arguments =
        ["speed", "-seconds", "3", "-bytes", "1048576", "-evp", "aes-256-gcm", "-decrypt"];
    let output = Command::new("openssl").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let row = text.lines().find(|line| line.to_lowercase().starts_with("aes-256-gcm"))?;
    let figure = row.split_whitespace().last()?.trim_end_matches('k').parse::<f64>().ok()?;
    Some(figure / 1e3)
}

fn main() {
    let path = std::env::temp_dir().join(format!("mien-bench-{}.mienpkg", std::process::id()));
    let device = DeviceKey::from_secret(&[1; 32], Keeper::File).unwrap();
    let signer = KeyPair::from_seed(&[2; 32]);
    let (sha256, _) = mien_vault::digest::of_reader(Noise(7).take(BYTES), BYTES).unwrap();
    let manifest = Manifest {
        id: "bench".parse().unwrap(),
        role: mien_base::model::Role::Swapper,
        family: mien_base::model::Family::InSwapper,
        version: Version(1, 0, 0),
        api: API,
        security_version: 1,
        sha256,
        bytes: BYTES,
        precision: Precision::Fp32,
        bounds: Bounds::default(),
        licence: "made".to_owned(),
        commercial: true,
        origin: "made".to_owned(),
        created: Wall(1),
        expires: None,
        requires: None,
        contract: Contract::default(),
    };
    let mut out = File::create(&path).unwrap();
    let devices = [device.public()];
    let mut input = Noise(7).take(BYTES);
    package::pack(&manifest, &[&signer], &devices, &mut input, &mut out, &mut SystemRandom)
        .unwrap();
    let mut trust = TrustStore::empty();
    let key = TrustedKey {
        public: signer.public(),
        name: "bench".to_owned(),
        roles: [KeyRole::Models].into(),
        added: Wall(0),
        expires: None,
        revoked: None,
    };
    trust.add(key).unwrap();
    let rules = Rules { trust: &trust, program: Version(1, 0, 0), now: Wall(2) };
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = cpu();
        let package = Package::read(File::open(&path).unwrap(), "bench").unwrap();
        let package = package.verify(&rules, |_| 0).unwrap();
        drop(package.open(&device).unwrap());
        best = best.min(cpu() - start);
    }
    std::fs::remove_file(&path).unwrap();
    let ours = BYTES as f64 / 1e6 / best;
    println!("open     {ours:7.0} MB/s of CPU time, pages of the memory included");
    println!(
        "memory   {:7.3} of the model at its peak",
        status("VmHWM:") as f64 * 1024.0 / BYTES as f64
    );
    match openssl() {
        Some(theirs) => {
            println!("openssl  {theirs:7.0} MB/s (speed -evp aes-256-gcm, 1 MiB)");
            println!("ratio    {:7.2}", ours / theirs);
        }
        None => println!("openssl  is not here"),
    }
}
