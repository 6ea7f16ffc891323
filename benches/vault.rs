//! Opening a package against what the cipher can do: `cargo bench -p mien-vault`.
//!
//! Prints MB/s of opening a 500 MB package into sealed memory (user time, as `openssl speed` counts;
//! least of eight), with the kernel's work for the memory beside it, what `openssl speed` gives for
//! AES-256-GCM in chunks of a MiB on the same machine, their ratio, and the peak memory, the
//! sealed one and this process's, as a multiple of the model.

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

/// Time that this process has worked, in seconds: as itself, and in the kernel for it.
fn cpu() -> (f64, f64) {
    let usage = std::fs::read_to_string("/proc/self/stat").unwrap();
    let mut fields = usage.rsplit(')').next().unwrap().split_whitespace().skip(11);
    let mut ticks = || fields.next().unwrap().parse::<f64>().unwrap() / 100.0;
    (ticks(), ticks())
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

/// MB/s of the cipher alone in chunks of a MiB, by the CPU's clock.
fn cipher() -> f64 {
    use aes_gcm::aead::{AeadInOut as _, KeyInit as _};
    let cipher = aes_gcm::Aes256Gcm::new(&[3; 32].into());
    let mut room = vec![5_u8; 1 << 20];
    let mut best = f64::MAX;
    for _ in 0..5 {
        let (start, _) = cpu();
        for _ in 0..400 {
            let tag =
                cipher.encrypt_inout_detached(&[7; 12].into(), b"", room.as_mut_slice().into());
            std::hint::black_box(tag.unwrap());
        }
        best = best.min(cpu().0 - start);
    }
    400.0 * room.len() as f64 / 1e6 / best
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
    let (mut best, mut whole) = (f64::MAX, f64::MAX);
    for _ in 0..8 {
        let (user, kernel) = cpu();
        let package = Package::read(File::open(&path).unwrap(), "bench").unwrap();
        let package = package.verify(&rules, |_| 0).unwrap();
        drop(package.open(&device).unwrap());
        let (user, kernel) = (cpu().0 - user, cpu().1 - kernel);
        (best, whole) = (best.min(user), whole.min(user + kernel));
    }
    println!("cipher   {:7.0} MB/s alone", cipher());
    std::fs::remove_file(&path).unwrap();
    let ours = BYTES as f64 / 1e6 / best;
    println!("open     {ours:7.0} MB/s of user time");
    println!(
        "         {:7.0} MB/s with the kernel's: memory made, filled, given back",
        BYTES as f64 / 1e6 / whole
    );
    // Pages of a memfd that nobody maps count for no process.
    let peak = BYTES + status("VmHWM:") * 1024;
    println!("memory   {:7.3} of the model at its peak", peak as f64 / BYTES as f64);
    match openssl() {
        Some(theirs) => {
            println!("openssl  {theirs:7.0} MB/s (speed -evp aes-256-gcm, 1 MiB)");
            println!("ratio    {:7.2}", ours / theirs);
        }
        None => println!("openssl  is not here"),
    }
}
