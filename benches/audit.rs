//! Measures the record: rows a second, bytes written a row, a check of all rows, queries at that size.
//!
//!     cargo bench -p mien-daemon --bench audit -- 1000000

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)] // A bench prints.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mien_base::clock::{SystemClock, Wall};
use mien_daemon::audit::{Entry, Face, Kind};
use mien_daemon::store::{HomeKeys, PATIENCE, Parts, Query, Store, When};
use mien_vault::Home;
use mien_vault::random::SystemRandom;
use serde_json::json;

/// 2026-06-01.
const START: u64 = 1_780_272_000;
/// Half a year.
const SPAN: u64 = 180 * 86_400;
const CAMERAS: u64 = 8;
const PEOPLE: u64 = 50;

fn open(home: &Path) -> Store {
    let clock = Arc::new(SystemClock::start());
    let keys = HomeKeys::open(&Home::at(home), &mut SystemRandom, Wall(START)).unwrap();
    let random = Box::new(SystemRandom);
    Store::open(home, Parts { clock, keys: Arc::new(keys), random, patience: PATIENCE }).unwrap()
}

/// The same numbers each time, without a pattern.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % most
    }
}

/// A job as a camera leaves it: one or two faces, somewhere in the picture.
fn job(n: u64, of: u64, numbers: &mut Numbers) -> Entry {
    let at = Wall(START + n * SPAN / of);
    let body = json!({ "outcome": "done", "bytes": numbers.below(1 << 22), "frame": n });
    let kind = if n.is_multiple_of(200) { Kind::Fault } else { Kind::Job };
    let mut entry = Entry::new(kind, at, body);
    entry.camera = Some(format!("cam-{}", numbers.below(CAMERAS)));
    for _ in 0..=numbers.below(2) {
        let (x, y) = (numbers.below(9000) as u16, numbers.below(8500) as u16);
        let known = numbers.below(4) == 0;
        let who = known.then(|| format!("p-{}", numbers.below(PEOPLE)).parse().unwrap());
        let did = if known { "swap:p-0" } else { "solid" }.to_owned();
        entry.faces.push(Face { place: [x, y, x + 1000, y + 1500], did, who });
    }
    entry
}

/// Bytes that this process had written to the disk so far.
fn written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// What this thread has worked so far.
fn cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
}

fn appended(store: &Store, from: u64, rows: u64, when: When, numbers: &mut Numbers) {
    let (start, before) = (Instant::now(), written());
    let mut waiting = std::collections::VecDeque::new();
    for n in from..from + rows {
        waiting.push_back(store.append_when(when, job(n, 1_000_000, numbers)));
        if when == When::Now || waiting.len() > 128 {
            waiting.pop_front().unwrap().wait().unwrap();
        }
    }
    waiting.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    let (seconds, bytes) = (start.elapsed().as_secs_f64(), written() - before);
    let (rate, each) = (rows as f64 / seconds, bytes as f64 / rows as f64);
    println!("{rows} rows, {when:?}: {rate:.0} rows/s, {each:.0} bytes written a row");
}

fn asked(store: &Store, name: &str, rounds: u64, mut query: impl FnMut() -> Query) {
    let (mut times, mut worked): (Vec<Duration>, Vec<Duration>) = (Vec::new(), Vec::new());
    let mut rows = 0;
    for _ in 0..rounds {
        let query = query();
        let (start, cpu) = (Instant::now(), cpu());
        rows += store.query(&query).unwrap().len();
        times.push(start.elapsed());
        worked.push(self::cpu() - cpu);
    }
    times.sort();
    worked.sort();
    let at = |all: &[Duration], share: f64| {
        all[((all.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3
    };
    let (p50, p95, work) = (at(&times, 0.5), at(&times, 0.95), at(&worked, 0.95));
    let each = rows as f64 / rounds as f64;
    println!(
        "{name:<26} p50 {p50:.2} ms  p95 {p95:.2} ms  (CPU {work:.2} ms)  {each:.0} rows each"
    );
}

fn main() {
    let rows: u64 = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(100_000);
    let home = std::env::temp_dir().join(format!("mien-bench-audit-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let store = open(&home);
    let mut numbers = Numbers(7);
    appended(&store, 0, 200, When::Now, &mut numbers);
    appended(&store, 200, rows - 200, When::Soon, &mut numbers);
    let size = std::fs::metadata(store.path()).unwrap().len() as f64;
    println!("{:.0} bytes a row in the file", size / rows as f64);

    let (start, worked) = (Instant::now(), cpu());
    let checked = store.verify().unwrap();
    let (seconds, worked) = (start.elapsed().as_secs_f64(), (cpu() - worked).as_secs_f64());
    let (rows_seen, faults) = (checked.rows, checked.faults.len());
    println!("{rows_seen} rows verified in {seconds:.2} s (CPU {worked:.2} s), {faults} faults");

    let mut pick = Numbers(11);
    let last = START + rows.min(1_000_000) * SPAN / 1_000_000;
    let span = last - START;
    let mut base = |hours: u64, place: bool, camera: bool| {
        let from = START + pick.below(span);
        let side = 500 + pick.below(2500) as u16;
        let (x, y) = (pick.below(7000) as u16, pick.below(7000) as u16);
        Query {
            from: Some(Wall(from)),
            until: Some(Wall(from + hours * 3600)),
            place: place.then_some([x, y, x + side, y + side]),
            camera: camera.then(|| format!("cam-{}", pick.below(CAMERAS))),
            most: 100,
            ..Query::default()
        }
    };
    asked(&store, "camera, hour, region", 1000, || base(1, true, true));
    asked(&store, "camera, day, region", 1000, || base(24, true, true));
    asked(&store, "camera, 30 days, region", 1000, || base(720, true, true));
    asked(&store, "30 days, region", 1000, || base(720, true, false));
    asked(&store, "camera, day", 1000, || base(24, false, true));
    let mut pick = Numbers(13);
    let mut person = || format!("p-{}", pick.below(PEOPLE)).parse().ok();
    asked(&store, "person", 1000, || Query { who: person(), most: 100, ..Query::default() });
    let mut pick = Numbers(17);
    asked(&store, "person, region, all time", 1000, || {
        let (x, y) = (pick.below(7000) as u16, pick.below(7000) as u16);
        Query {
            who: format!("p-{}", pick.below(PEOPLE)).parse().ok(),
            place: Some([x, y, x + 1500, y + 1500]),
            most: 100,
            ..Query::default()
        }
    });
    let fault = || Query { kind: Some(Kind::Fault), most: 100, ..Query::default() };
    asked(&store, "kind", 1000, fault);
    asked(&store, "newest", 1000, || Query { most: 100, ..Query::default() });

    let start = Instant::now();
    let sealed = store.seal().unwrap().unwrap();
    let seconds = start.elapsed().as_secs_f64();
    println!("sealed {} rows in {seconds:.1} s", sealed.statement.last);
    drop(store);
    std::fs::remove_dir_all(&home).unwrap();
}
