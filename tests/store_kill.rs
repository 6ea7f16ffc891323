//! Killed at any instant, the database holds what was answered, and forgets what it was told to.
//!
//! `MIEN_KILLS` says how often each is killed, here and in tests/vault.rs: 300 once, a tenth each
//! time.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::{Clock as _, SystemClock, Wall};
use mien_base::consent::{ConsentRecord, Quality, Scope, SourceRecord};
use mien_base::id::IdentityId;
use mien_daemon::audit::{Entry, Kind};
use mien_daemon::store::{HomeKeys, PATIENCE, Parts, Query, Store, When};
use mien_vault::random::SystemRandom;
use mien_vault::{Home, SourceStore as _};
use serde_json::json;
use support::{Bench, kills};

/// The home of a child of this test; it is a child when this is set.
const CHILD: &str = "MIEN_TEST_STORE_CHILD";

fn open(home: &Path) -> Store {
    let random = Box::new(SystemRandom);
    let clock = Arc::new(SystemClock::start());
    let keys = HomeKeys::open(&Home::at(home), &mut SystemRandom, clock.wall()).unwrap();
    Store::open(home, Parts { clock, keys: Arc::new(keys), random, patience: PATIENCE }).unwrap()
}

/// Bytes without a pattern, another time others.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// An instant somewhere in `most`, another one each time.
fn instant(n: u32, most: Duration) -> Duration {
    let bytes = noise(u64::from(n) + 77, 4);
    most.mul_f64(f64::from(u16::from_le_bytes([bytes[0], bytes[1]])) / 65_535.0)
}

fn entry(n: u64) -> Entry {
    Entry::new(Kind::Config, SystemClock::start().wall(), json!({ "n": n }))
}

/// The child of the next test: adds rows until it is killed, and says each that was answered.
#[test]
fn a_child_that_appends_until_it_is_killed() {
    let Some(home) = std::env::var_os(CHILD) else { return };
    let store = open(Path::new(&home));
    let mut out = std::io::stdout().lock();
    for n in 0.. {
        // Groups and single rows, as they come in a running system.
        let soon: Vec<_> = (0..n % 5).map(|m| store.append_when(When::Soon, entry(m))).collect();
        let link = store.append(entry(n)).unwrap();
        soon.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
        writeln!(out, "row {} {}", link.row.seq, link.hash).unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn rows_that_were_answered_survive_kill_9_at_any_instant_and_the_chain_holds() {
    let bench = Bench::bare("kill-append");
    let home = bench.home();
    let mut answered: Vec<(u64, String)> = Vec::new();
    for n in 0..kills() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_child_that_appends_until_it_is_killed", "--nocapture"])
            .env(CHILD, &home)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let reader = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let rows = out.lines().map_while(Result::ok).filter_map(|line| {
                    let words: Vec<&str> = line.split(' ').collect();
                    // The harness may have begun the line.
                    let at = words.iter().position(|word| *word == "row")?;
                    Some((words.get(at + 1)?.parse().ok()?, (*words.get(at + 2)?).to_owned()))
                });
                rows.collect::<Vec<(u64, String)>>()
            });
            std::thread::sleep(instant(n, Duration::from_millis(400)));
            child.kill().unwrap();
            child.wait().unwrap();
            reader.join().unwrap()
        });
        // The last line may have been cut off by the kill.
        answered.extend(reader.into_iter().filter(|(_, hash)| hash.len() == 64));
        let store = open(&home);
        let checked = store.verify().unwrap();
        assert_eq!(checked.faults, [], "after kill {n}");
        if let Some((last, _)) = answered.last() {
            assert!(
                checked.end.0 >= *last,
                "row {last} was answered, {} is the end",
                checked.end.0
            );
        }
    }
    assert!(answered.len() > kills() as usize, "{} rows in all", answered.len());
    let store = open(&home);
    for (seq, hash) in answered.iter().rev().take(200) {
        let query = Query { before: Some(seq + 1), most: 1, ..Query::default() };
        let found = store.query(&query).unwrap();
        // A clock that stands still orders them by number.
        let there = found.iter().any(|link| link.row.seq == *seq && link.hash.to_string() == *hash);
        assert!(there || by_number(&store, *seq, hash), "row {seq} is not as it was answered");
    }
}

fn by_number(store: &Store, seq: u64, hash: &str) -> bool {
    let all = Query { most: 10_000, ..Query::default() };
    let rows = store.query(&all).unwrap();
    rows.iter().any(|link| link.row.seq == seq && link.hash.to_string() == hash)
}

fn record(name: &str, seed: u64) -> SourceRecord {
    SourceRecord {
        identity: name.parse().unwrap(),
        embedder: Some(("mobilefacenet192".parse().unwrap(), "0".repeat(64))),
        embedding: noise(seed, 192).iter().map(|v| f32::from(*v) / 97.0 - 1.0).collect(),
        mesh: vec![[0.1, 0.2, 191.3]; 468],
        landmarks: [[1.5, 2.25]; 5],
        quality: Quality { face_px: 90.0, sharpness: 50.0, yaw: 1.0, pitch: -2.0, score: 0.9 },
        enrolled: Wall(1_796_063_974),
    }
}

fn portrait(seed: u64) -> Vec<u8> {
    [b"\x89PNG\r\n\x1a\n", &noise(seed, 300_000)[..]].concat()
}

fn consent(name: &str) -> ConsentRecord {
    ConsentRecord {
        identity: name.parse().unwrap(),
        subject: "p-0417".to_owned(),
        purpose: "Training film".to_owned(),
        scope: vec![Scope::Swap],
        granted: Wall(1_796_000_000),
        expires: Wall(1_896_000_000),
        revoked: None,
        evidence: None,
        operator: "front desk".to_owned(),
    }
}

/// All that the database keeps on disk.
fn bytes(home: &Path) -> Vec<u8> {
    let read = |name: &str| fs::read(home.join(name)).unwrap_or_default();
    [read("mien.db"), read("mien.db-wal")].concat()
}

#[test]
fn a_source_is_whole_or_gone_when_forget_is_killed_at_any_instant() {
    let bench = Bench::bare("kill-forget");
    let home = bench.home();
    let (ada, bob): (IdentityId, IdentityId) = ("ada".parse().unwrap(), "bob".parse().unwrap());
    open(&home).put(&record("bob", 1), &portrait(1), Some(&consent("bob"))).unwrap();
    let (mut whole, mut gone) = (0, 0);
    for n in 0..kills() {
        let seed = u64::from(n) + 10;
        let store = open(&home);
        if !store.list().unwrap().contains(&ada) {
            store.put(&record("ada", seed), &portrait(seed), Some(&consent("ada"))).unwrap();
        }
        let portrait_then = store.get(&ada).unwrap().portrait;
        drop(store);
        let (wrapped, sealed) = stored(&home);
        assert!(bytes(&home).windows(32).any(|window| window == &wrapped[12..44]));
        let mut child = bench
            .mien(&["source", "forget", "ada"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(instant(n, Duration::from_millis(120)));
        let _ = child.kill();
        child.wait().unwrap();

        // Opening finishes what was begun.
        let store = open(&home);
        let checked = store.verify().unwrap();
        assert_eq!(checked.faults, [], "after kill {n}");
        let forgotten = Query { who: Some(ada.clone()), most: 1, ..Query::default() };
        let last = store.query(&forgotten).unwrap().remove(0).row.entry.kind;
        if store.list().unwrap().contains(&ada) {
            whole += 1;
            assert_eq!(store.get(&ada).unwrap().portrait, portrait_then);
            assert_eq!(store.consents(Some(&ada)).unwrap().len(), 1);
            assert_ne!(last, Kind::Forget);
        } else {
            gone += 1;
            assert_eq!(last, Kind::Forget, "gone without a row that says so");
            assert!(store.consents(None).unwrap().iter().all(|c| c.identity == bob));
            let bytes = bytes(&home);
            let stands = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
            assert!(!stands(&wrapped[12..]), "its key is left");
            for part in [0, sealed.len() / 3, sealed.len() - 32] {
                assert!(!stands(&sealed[part..part + 32]), "a part of it is left at {part}");
            }
        }
        assert_eq!(store.get(&bob).unwrap().portrait, portrait(1));
    }
    assert_eq!(whole + gone, kills());
}

/// Key and content of the source as they stand in the database.
fn stored(home: &Path) -> (Vec<u8>, Vec<u8>) {
    let conn = rusqlite::Connection::open(home.join("mien.db")).unwrap();
    let words = "SELECT wrapped, sealed FROM source JOIN source_key USING (identity)
        WHERE identity = 'ada'";
    conn.query_row(words, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}
