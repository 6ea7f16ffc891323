//! The database as a whole: what was answered stands, what was forgotten is gone.

use super::*;
use crate::audit::{Face, Fault, Kind};
use mien_base::clock::{ManualClock, Wall};
use mien_base::consent::{ConsentRecord, Quality, Scope, SourceRecord};
use mien_base::id::IdentityId;
use mien_vault::random::SystemRandom;
use mien_vault::{Home, SourceStore as _};
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed when dropped.
#[derive(Debug)]
pub(super) struct Scratch(pub(super) PathBuf, Duration);

impl Scratch {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mien-store-{}-{n}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path, PATIENCE)
    }

    pub(super) fn store(&self) -> Store {
        self.store_at(Wall(1_800_000_000)).0
    }

    pub(super) fn store_at(&self, wall: Wall) -> (Store, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(wall));
        let keys = HomeKeys::open(&Home::at(&self.0), &mut SystemRandom, wall).unwrap();
        let parts = Parts {
            clock: clock.clone(),
            keys: Arc::new(keys),
            random: Box::new(SystemRandom),
            patience: self.1,
        };
        (Store::open(&self.0, parts).unwrap(), clock)
    }

    /// The database, for who goes past the store.
    fn raw(&self) -> Connection {
        Connection::open(self.0.join("mien.db")).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes without a pattern.
pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub(super) fn record(name: &str, seed: u64) -> SourceRecord {
    let values = noise(seed, 192);
    SourceRecord {
        identity: name.parse().unwrap(),
        embedder: Some(("mobilefacenet192".parse().unwrap(), "0".repeat(64))),
        embedding: values.iter().map(|v| f32::from(*v) / 97.0 - 1.0).collect(),
        mesh: vec![[0.1, 1.0e-7, 191.3]; 468],
        landmarks: [[1.5, 2.25]; 5],
        quality: Quality { face_px: 90.0, sharpness: 50.0, yaw: 1.0, pitch: -2.0, score: 0.9 },
        enrolled: Wall(1_796_063_974),
    }
}

pub(super) fn portrait(seed: u64) -> Vec<u8> {
    [b"\x89PNG\r\n\x1a\n", &noise(seed, 60_000)[..]].concat()
}

pub(super) fn consent(name: &str) -> ConsentRecord {
    ConsentRecord {
        identity: name.parse().unwrap(),
        subject: "p-0417".to_owned(),
        purpose: "Training film".to_owned(),
        scope: vec![Scope::Swap],
        granted: Wall(1_796_000_000),
        expires: Wall(1_896_000_000),
        revoked: None,
        evidence: Some("ab".repeat(32)),
        operator: "front desk".to_owned(),
    }
}

pub(super) fn id(name: &str) -> IdentityId {
    name.parse().unwrap()
}

fn kinds(store: &Store) -> Vec<Kind> {
    let all = Query { most: 1000, ..Query::default() };
    let mut kinds: Vec<Kind> =
        store.query(&all).unwrap().iter().map(|link| link.row.entry.kind).collect();
    kinds.reverse();
    kinds
}

pub(super) fn entry(n: u64) -> Entry {
    Entry::new(Kind::Config, Wall(1_800_000_000 + n), json!({ "n": n }))
}

#[test]
fn a_source_comes_back_as_it_was_put_and_only_once() {
    let scratch = Scratch::new();
    let store = scratch.store();
    store.put(&record("ada", 1), &portrait(1), Some(&consent("ada"))).unwrap();
    let again = store.put(&record("ada", 2), &portrait(2), None).unwrap_err();
    assert!(matches!(again, Error::Vault(mien_vault::Error::SourceExists { .. })), "{again}");
    drop(store);
    let store = scratch.store();
    let got = store.get(&id("ada")).unwrap();
    assert_eq!((got.record, got.portrait), (record("ada", 1), portrait(1)));
    assert_eq!(got.consents, [consent("ada")]);
    assert_eq!(store.list().unwrap(), [id("ada")]);
    assert_eq!(kinds(&store), [Kind::Enrol, Kind::Grant]);
    let unknown = store.get(&id("bob")).unwrap_err();
    assert!(matches!(unknown, Error::Vault(mien_vault::Error::SourceUnknown { .. })));
}

#[test]
fn only_the_owner_can_read_the_database() {
    let scratch = Scratch::new();
    fs::set_permissions(&scratch.0, Permissions::from_mode(0o755)).unwrap();
    let store = scratch.store();
    store.append(entry(1)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scratch.0), 0o700);
    for name in ["mien.db", "mien.db-wal", "mien.db-shm"] {
        assert_eq!(mode(&scratch.0.join(name)), 0o600, "{name}");
    }
}

#[test]
fn nothing_of_a_face_stands_in_plain_and_after_forgetting_nothing_at_all() {
    let scratch = Scratch::new();
    let store = scratch.store();
    for (seed, name) in (1..).zip(["ada", "bob", "eve"]) {
        store.put(&record(name, seed), &portrait(seed), Some(&consent(name))).unwrap();
        store.revoke(&id(name), None, Wall(1_800_000_000), "op").unwrap();
    }
    let files = || {
        let read = |name: &str| fs::read(scratch.0.join(name)).unwrap_or_default();
        [read("mien.db"), read("mien.db-wal"), read("mien.db-shm")].concat()
    };
    let stands = |what: &[u8]| files().windows(what.len()).any(|window| window == what);
    let face = portrait(2);
    let numbers: Vec<u8> =
        record("bob", 2).embedding.iter().flat_map(|v| v.to_le_bytes()).collect();
    assert!(!stands(&face[100..130]) && !stands(&numbers[..30]));

    let (wrapped, sealed): (Vec<u8>, Vec<u8>) = scratch
        .raw()
        .query_row(
            "SELECT wrapped, sealed FROM source JOIN source_key USING (identity)
             WHERE identity = 'bob'",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    let id_of_consent = store.consents(Some(&id("bob"))).unwrap().remove(0).id;
    let (envelope, revocation) = store.envelopes(&id("bob"), &id_of_consent).unwrap();
    let signatures = [envelope, revocation.unwrap()].map(|e| e.as_bytes()[e.len() - 60..].to_vec());
    assert!(stands(&wrapped[12..]) && stands(&sealed[..200]) && stands(&signatures[0]));

    let erased = store.forget(&id("bob")).unwrap();
    assert!(erased.needles > 100 && erased.bytes > 100_000, "{erased:?}");
    for part in sealed.chunks_exact(32).step_by(7) {
        assert!(!stands(part));
    }
    assert!(!stands(&wrapped[12..]) && signatures.iter().all(|s| !stands(s)));
    assert!(!stands(&face[100..130]) && !stands(&numbers[..30]));
    // Nobody else lost anything.
    assert_eq!(store.list().unwrap(), [id("ada"), id("eve")]);
    for (seed, name) in [(1, "ada"), (3, "eve")] {
        let got = store.get(&id(name)).unwrap();
        assert_eq!((got.portrait, got.consents.len()), (portrait(seed), 1));
    }
    assert!(matches!(store.forget(&id("bob")), Err(Error::Vault(_))));
    assert_eq!(kinds(&store).last(), Some(&Kind::Forget));
}

#[test]
fn a_forget_that_was_killed_before_its_end_is_finished_by_the_next_open() {
    let scratch = Scratch::new();
    let store = scratch.store();
    store.put(&record("ada", 1), &portrait(1), None).unwrap();
    // What a process leaves that dies after its transaction: rows gone, log whole.
    let conn = scratch.raw();
    conn.execute_batch(
        "PRAGMA secure_delete = ON; BEGIN; DELETE FROM source_key; DELETE FROM source;
         INSERT INTO erasure VALUES ('ada', 1); COMMIT;",
    )
    .unwrap();
    assert!(fs::metadata(scratch.0.join("mien.db-wal")).unwrap().len() > 60_000);
    let second = scratch.store();
    assert_eq!(fs::metadata(scratch.0.join("mien.db-wal")).unwrap().len(), 0);
    let left: u64 = conn.query_row("SELECT count(*) FROM erasure", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    drop((store, second));
}

#[test]
fn a_consent_record_counts_only_through_a_trusted_signature() {
    let scratch = Scratch::new();
    let store = scratch.store();
    for name in ["ada", "bob"] {
        store.put(&record(name, 1), &portrait(1), Some(&consent(name))).unwrap();
    }
    let tamper = |statement: &str| scratch.raw().execute_batch(statement).unwrap();
    let faults = |store: &Store| -> Vec<String> {
        store.consents(None).unwrap().into_iter().filter_map(|c| c.record.err()).collect()
    };
    assert!(faults(&store).is_empty());
    // Bob gets Ada's envelope.
    tamper(
        "UPDATE consent SET envelope = (SELECT envelope FROM consent WHERE identity = 'ada')
         WHERE identity = 'bob'",
    );
    assert!(store.get(&id("bob")).unwrap().consents.is_empty());
    assert!(faults(&store)[0].contains("bound to `ada`"), "{:?}", faults(&store));
    // Ada's is changed, then signed by somebody else.
    tamper("UPDATE consent SET envelope = replace(envelope, 'sig\":\"', 'sig\":\"A')");
    assert!(store.get(&id("ada")).unwrap().consents.is_empty());
    drop(store);
    fs::remove_file(scratch.0.join("keys/consent.seed")).unwrap();
    fs::remove_file(scratch.0.join("keys/trust.json")).unwrap();
    let store = scratch.store();
    store.grant(&consent("ada")).unwrap();
    assert_eq!(faults(&store).len(), 2);
}

#[test]
fn revoking_keeps_the_earliest_time_and_is_not_undone_by_granting_the_same_again() {
    let scratch = Scratch::new();
    let store = scratch.store();
    store.put(&record("ada", 1), &portrait(1), None).unwrap();
    let missing = store.revoke(&id("ada"), None, Wall(5), "op").unwrap_err();
    assert!(matches!(missing, Error::Vault(mien_vault::Error::ConsentMissing { .. })));
    let first = store.grant(&consent("ada")).unwrap();
    let revoked = |store: &Store| store.get(&id("ada")).unwrap().consents[0].revoked;
    assert_eq!(
        store.revoke(&id("ada"), None, Wall(50), "op").unwrap(),
        std::slice::from_ref(&first)
    );
    assert!(store.revoke(&id("ada"), Some(&first), Wall(90), "op").unwrap().is_empty());
    assert_eq!(revoked(&store), Some(Wall(50)));
    assert_eq!(store.revoke(&id("ada"), Some(&first), Wall(40), "op").unwrap().len(), 1);
    assert_eq!(store.grant(&consent("ada")).unwrap(), first);
    assert_eq!(revoked(&store), Some(Wall(40)));
    // Another record is another matter.
    let later = ConsentRecord { granted: Wall(1_800_000_000), ..consent("ada") };
    assert_ne!(store.grant(&later).unwrap(), first);
    assert_eq!(store.get(&id("ada")).unwrap().consents.len(), 2);
    assert!(store.grant(&consent("bob")).is_err());
}

#[test]
fn a_watch_tells_of_changed_policy_by_any_process_and_of_nothing_else() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.store(), scratch.store());
    let mut watch = store.watch().unwrap();
    assert!(!watch.changed().unwrap());
    other.append(entry(1)).unwrap();
    assert!(!watch.changed().unwrap());
    other.put(&record("ada", 1), &portrait(1), Some(&consent("ada"))).unwrap();
    assert!(watch.changed().unwrap());
    assert!(!watch.changed().unwrap());
    other.revoke(&id("ada"), None, Wall(9), "op").unwrap();
    assert!(watch.changed().unwrap());
    store.forget(&id("ada")).unwrap();
    assert!(watch.changed().unwrap() && !watch.changed().unwrap());
}

#[test]
fn old_files_are_taken_over_once_and_erased() {
    let scratch = Scratch::new();
    let home = Home::at(&scratch.0);
    let write = |name: &str, seed: u64| {
        let folder = home.identities().join(name);
        fs::create_dir_all(&folder).unwrap();
        let json = serde_json::to_vec(&record(name, seed)).unwrap();
        fs::write(folder.join("source.json"), json).unwrap();
        fs::write(folder.join("portrait.png"), portrait(seed)).unwrap();
        let json = serde_json::to_vec(&consent(name)).unwrap();
        fs::write(folder.join("consent.json"), json).unwrap();
    };
    write("ada", 1);
    let store = scratch.store();
    let imported = store.import(&home).unwrap();
    assert_eq!((imported.taken, imported.left), (vec![id("ada")], vec![]));
    assert!(!home.identities().exists());
    let got = store.get(&id("ada")).unwrap();
    assert_eq!((got.record, got.portrait), (record("ada", 1), portrait(1)));
    assert_eq!(got.consents, [consent("ada")]);
    assert_eq!(kinds(&store), [Kind::Import, Kind::Grant]);
    // Killed before the files were erased: the same again changes nothing but the files.
    write("ada", 1);
    assert_eq!(store.import(&home).unwrap(), Imported::default());
    assert!(!home.identities().exists());
    assert_eq!(kinds(&store).len(), 2);
    // Another one of that name, and a damaged one, stay where they are.
    write("ada", 9);
    write("bob", 2);
    fs::write(home.identities().join("bob/source.json"), b"{").unwrap();
    let left = store.import(&home).unwrap().left;
    assert_eq!(left.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["ada", "bob"]);
    assert!(home.identities().join("ada/portrait.png").exists());
}

#[test]
fn rows_of_several_processes_and_threads_make_one_chain() {
    let scratch = Scratch::new();
    let stores = [scratch.store(), scratch.store()];
    std::thread::scope(|scope| {
        for store in &stores {
            for _ in 0..2 {
                scope.spawn(move || {
                    let tickets: Vec<_> =
                        (0..100).map(|n| store.append_when(When::Soon, entry(n))).collect();
                    tickets.into_iter().for_each(|t| drop(t.wait().unwrap()));
                });
            }
        }
    });
    let checked = stores[0].verify().unwrap();
    assert_eq!((checked.rows, checked.faults), (400, vec![]));
}

#[test]
fn work_that_fails_leaves_nothing_and_harms_nobody_in_its_group() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let mut bad = entry(1);
    bad.body.insert("x".into(), json!(0.5));
    let tickets = [
        store.append_when(When::Soon, entry(1)),
        store.append_when(When::Soon, bad),
        store.append_when(When::Now, entry(2)),
    ];
    let done: Vec<bool> = tickets.into_iter().map(|t| t.wait().is_ok()).collect();
    assert_eq!(done, [true, false, true]);
    assert_eq!(store.verify().unwrap().rows, 2);
}

#[test]
fn a_process_that_holds_the_database_is_named_after_a_while() {
    let mut scratch = Scratch::new();
    scratch.1 = Duration::from_millis(50);
    let store = scratch.store();
    let conn = scratch.raw();
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.append(entry(1)).unwrap_err();
    assert!(matches!(error, Error::StoreBusy), "{error}");
    conn.execute_batch("COMMIT").unwrap();
    assert_eq!(store.append(entry(1)).unwrap().row.seq, 1);
}

#[test]
fn the_end_is_signed_at_stop_and_at_intervals() {
    let scratch = Scratch::new();
    let store = scratch.store();
    for n in 0..5 {
        store.append(entry(n)).unwrap();
    }
    assert_eq!(store.verify().unwrap().signed, 0);
    drop(store);
    let store = scratch.store();
    let checked = store.verify().unwrap();
    assert_eq!((checked.signed, checked.heads, checked.faults), (5, 1, vec![]));
    let tickets: Vec<_> = (0..1100).map(|n| store.append_when(When::Soon, entry(n))).collect();
    tickets.into_iter().for_each(|t| drop(t.wait().unwrap()));
    assert_eq!(store.verify().unwrap().signed, 1024);
}

#[test]
fn rows_can_not_be_changed_deleted_replaced_or_put_in_between() {
    let scratch = Scratch::new();
    let store = scratch.store();
    (0..5).for_each(|n| drop(store.append(entry(n)).unwrap()));
    drop(store);
    let conn = scratch.raw();
    for statement in [
        "UPDATE audit SET at = 1 WHERE seq = 2",
        "DELETE FROM audit WHERE seq = 5",
        "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE seq = 3",
        "INSERT INTO audit SELECT 9, at, kind, camera, job, who, faces, body, prev, hash FROM audit
         WHERE seq = 5",
        "INSERT INTO audit SELECT 6, at, kind, camera, job, who, faces, body, prev, hash FROM audit
         WHERE seq = 5",
        "DELETE FROM audit_head",
        "UPDATE audit_head SET seq = 9",
    ] {
        let error = conn.execute_batch(statement).unwrap_err().to_string();
        assert!(error.contains("never") || error.contains("must follow"), "{statement}: {error}");
    }
    assert_eq!(scratch.store().verify().unwrap().faults, []);
}

/// Removes what keeps rows, changes them, and puts it back: what a forger with the file would do.
fn forged(change: &str) -> Vec<Fault> {
    let scratch = Scratch::new();
    let store = scratch.store();
    (0..9).for_each(|n| drop(store.append(entry(n)).unwrap()));
    drop(store);
    let conn = scratch.raw();
    let triggers: Vec<(String, String)> = conn
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    triggers.iter().for_each(|(n, _)| conn.execute_batch(&format!("DROP TRIGGER {n}")).unwrap());
    conn.execute_batch(change).unwrap();
    triggers.iter().for_each(|(_, words)| conn.execute_batch(words).unwrap());
    drop(conn);
    let store = scratch.store();
    store.verify().unwrap().faults
}

#[test]
fn a_changed_deleted_reordered_or_inserted_row_is_found_and_named() {
    assert_eq!(forged(""), []);
    let found = forged("UPDATE audit SET body = '{\"n\":7}' WHERE seq = 4");
    assert!(matches!(found[..], [Fault::Changed { seq: 4, .. }]), "{found:?}");
    let found = forged("UPDATE audit SET at = at + 1 WHERE seq = 4");
    assert!(matches!(found[..], [Fault::Changed { seq: 4, .. }]), "{found:?}");
    let found = forged("DELETE FROM audit WHERE seq = 4");
    assert_eq!(found, [Fault::Missing { from: 4, to: 4 }]);
    let found = forged("DELETE FROM audit WHERE seq = 4; UPDATE audit SET seq = 4 WHERE seq = 9");
    assert!(found.contains(&Fault::Unlinked { seq: 4 }), "{found:?}");
    let found = forged(
        "UPDATE audit SET seq = 100 WHERE seq = 4; UPDATE audit SET seq = 4 WHERE seq = 5;
         UPDATE audit SET seq = 5 WHERE seq = 100",
    );
    assert_eq!(found[0], Fault::Unlinked { seq: 4 }, "{found:?}");
    let found = forged(
        "UPDATE audit SET seq = 10 WHERE seq = 9;
         INSERT INTO audit SELECT 9, at, kind, camera, job, who, faces, body, hash, hash FROM audit
         WHERE seq = 8",
    );
    assert!(found.iter().any(|f| f.to_string().contains("row 9")), "{found:?}");
    // The end cut off: a signed head speaks of it.
    let found = forged("DELETE FROM audit WHERE seq > 6");
    assert_eq!(found, [Fault::CutOff { last: 6, signed: 9 }]);
    let found = forged("UPDATE audit SET faces = '[{' WHERE seq = 4");
    assert!(matches!(found[0], Fault::Unreadable { seq: 4, .. }), "{found:?}");
    let found = forged("DROP INDEX audit_by_time");
    assert!(found[0].to_string().contains("audit_by_time is gone"), "{found:?}");
}

#[test]
fn one_line_out_of_other_columns_is_found() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let camera = Some("x".to_owned());
    store.append(Entry { camera, ..entry(1) }).unwrap();
    drop(store);
    let conn = scratch.raw();
    conn.execute_batch(
        "DROP TRIGGER audit_stays;
         UPDATE audit SET body = body || ',\"camera\":\"x\"', camera = NULL;
         CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN
             SELECT RAISE(ABORT, 'an audit row is never changed');
         END;",
    )
    .unwrap();
    let found = scratch.store().verify().unwrap().faults;
    assert!(matches!(found[..], [Fault::Unreadable { seq: 1, .. }]), "{found:?}");
}

#[test]
fn a_rewritten_end_does_not_agree_with_its_signed_head() {
    let scratch = Scratch::new();
    let store = scratch.store();
    (0..3).for_each(|n| drop(store.append(entry(n)).unwrap()));
    let last = store.query(&Query { most: 1, ..Query::default() }).unwrap().remove(0);
    drop(store);
    let mut forged = last.row;
    forged.entry.kind = Kind::Stop;
    let forged = Link::of(forged).unwrap();
    let conn = scratch.raw();
    conn.execute_batch("DROP TRIGGER audit_stays").unwrap();
    conn.execute("UPDATE audit SET kind = 'stop', hash = ?1 WHERE seq = 3", [forged.hash.0])
        .unwrap();
    let found = scratch.store().verify().unwrap().faults;
    assert!(found.contains(&Fault::Head { seq: 3 }), "{found:?}");
    assert!(found[0].to_string().contains("audit_stays is gone"), "{found:?}");
}

/// A made day of faces: five cameras, three people, boxes all over.
pub(super) fn day(n: u64) -> Entry {
    let at = Wall(1_800_000_000 + n * 7 % 86_400);
    let bytes = noise(n + 1, 8);
    let part = |i: usize| u16::from(bytes[i]) * 30;
    let (x, y) = (part(0), part(1));
    let mut entry = Entry::new(Kind::Job, at, json!({ "n": n }));
    entry.camera = (!n.is_multiple_of(6)).then(|| format!("cam-{}", n % 6));
    let who = ["ada", "bob", "eve"].get((n % 4) as usize).map(|who| who.parse().unwrap());
    if !n.is_multiple_of(3) {
        let place = [x, y, x + 1500, y + 2000];
        entry.faces.push(Face { place, did: "solid".to_owned(), who: who.clone() });
        entry.faces.push(Face { place: [0, 0, 100, 100], did: "pass".to_owned(), who: None });
    }
    if n.is_multiple_of(5) {
        entry.kind = Kind::Fault;
        entry.who = who;
    }
    entry
}

/// What a query means, said plainly.
fn matches(query: &Query, link: &Link) -> bool {
    let e = &link.row.entry;
    let touches = |place: Place| {
        e.faces.iter().any(|f| {
            f.place[0] <= place[2]
                && f.place[2] >= place[0]
                && f.place[1] <= place[3]
                && f.place[3] >= place[1]
        })
    };
    let names = |who: &IdentityId| {
        e.who.as_ref() == Some(who) || e.faces.iter().any(|f| f.who.as_ref() == Some(who))
    };
    query.from.is_none_or(|from| e.at >= from)
        && query.until.is_none_or(|until| e.at < until)
        && query.camera.as_ref().is_none_or(|c| e.camera.as_ref() == Some(c))
        && query.kind.is_none_or(|kind| e.kind == kind)
        && query.job.is_none_or(|job| e.job == Some(job))
        && query.before.is_none_or(|before| link.row.seq < before)
        && query.place.is_none_or(touches)
        && query.who.as_ref().is_none_or(names)
}

use crate::audit::Place;

#[test]
fn a_query_finds_what_a_walk_over_all_rows_finds_newest_first() {
    let scratch = Scratch::new();
    let store = scratch.store();
    let tickets: Vec<_> = (0..900).map(|n| store.append_when(When::Soon, day(n))).collect();
    let all: Vec<Link> = tickets.into_iter().map(|t| t.wait().unwrap()).collect();
    let choices = noise(5, 4000);
    let mut answered = 0;
    for pick in choices.chunks_exact(10) {
        let when = |b: u8| Wall(1_800_000_000 + u64::from(b) * 350);
        let side = |b: u8| u16::from(b) * 39;
        let (x, y) = (side(pick[4]).min(side(pick[5])), side(pick[6]).min(side(pick[7])));
        let query = Query {
            from: (pick[0] % 3 == 0).then(|| when(pick[1])),
            until: (pick[0] % 4 == 0).then(|| when(pick[2])),
            camera: (pick[3] % 3 == 0).then(|| format!("cam-{}", pick[3] % 7)),
            place: (pick[4] % 2 == 0).then_some([x, y, side(pick[4]).max(x), side(pick[6]).max(y)]),
            who: (pick[8] % 3 == 0)
                .then(|| id(["ada", "bob", "nobody"][usize::from(pick[8] % 9 / 3)])),
            kind: (pick[9] % 3 == 0).then_some([Kind::Job, Kind::Fault][usize::from(pick[9] % 2)]),
            job: None,
            before: (pick[9] % 7 == 0).then_some(u64::from(pick[9]) * 3),
            most: 20,
        };
        let found = store.query(&query).unwrap();
        assert!(all.iter().all(|link| query.admits(link) == matches(&query, link)), "{query:?}");
        let mut expected: Vec<&Link> = all.iter().filter(|link| matches(&query, link)).collect();
        expected.sort_by_key(|link| std::cmp::Reverse((link.row.entry.at, link.row.seq)));
        expected.truncate(20);
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{query:?}");
        answered += usize::from(!found.is_empty());
    }
    assert!(answered > 100, "{answered}");
}

#[test]
fn sealing_begins_anew_without_breaking_the_chain() {
    let scratch = Scratch::new();
    let store = scratch.store();
    assert!(store.seal().unwrap().is_none());
    let tickets: Vec<_> = (0..50).map(|n| store.append_when(When::Soon, day(n))).collect();
    tickets.into_iter().for_each(|t| drop(t.wait().unwrap()));
    let sealed = store.seal().unwrap().unwrap();
    assert_eq!((sealed.statement.first, sealed.statement.last), (1, 50));
    let rows = store.query(&Query { most: 100, ..Query::default() }).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].row.seq, rows[0].row.prev), (51, sealed.statement.head));
    assert_eq!(rows[0].row.entry.kind, Kind::Export);
    store.append(day(60)).unwrap();
    let checked = store.verify().unwrap();
    assert_eq!((checked.rows, checked.end.0, checked.faults), (2, 52, vec![]));
    // The old rows are not found any more, the new ones are, by place too.
    let place = Query { place: Some([0, 0, 10_000, 10_000]), most: 100, ..Query::default() };
    assert!(store.query(&place).unwrap().iter().all(|link| link.row.seq > 50));
    let lines = fs::read(&sealed.file).unwrap();
    let envelope = fs::read_to_string(sealed.file.with_extension("jsonl.sig")).unwrap();
    let found = crate::audit::verify_file(&lines[..], envelope.trim_end(), None).unwrap();
    assert_eq!((found.rows, found.faults), (50, vec![]));
    let again = store.seal().unwrap().unwrap();
    assert_eq!((again.statement.first, again.statement.prev), (51, sealed.statement.head));
    assert_eq!(store.sealed().unwrap().len(), 2);
    assert_eq!(store.verify().unwrap().faults, []);
}

#[test]
fn an_export_of_a_span_of_time_holds_and_is_recorded() {
    let scratch = Scratch::new();
    let store = scratch.store();
    (0..10).for_each(|n| drop(store.append(entry(n)).unwrap()));
    let path = scratch.0.join("out.jsonl");
    let at = |n: u64| Some(Wall(1_800_000_000 + n));
    let export = store.export(&path, at(3), at(7)).unwrap().unwrap();
    assert_eq!((export.statement.first, export.statement.last), (4, 7));
    let lines = fs::read(&path).unwrap();
    let found = crate::audit::verify_file(&lines[..], &export.envelope, None).unwrap();
    assert_eq!((found.rows, found.faults), (4, vec![]));
    assert!(kinds(&store).contains(&Kind::Export));
    assert!(store.export(&path, at(500), None).unwrap().is_none());
}

#[test]
fn a_record_of_another_desk_counts_by_its_own_signature_once_that_desk_is_trusted() {
    use mien_vault::sign::KeyPair;
    use mien_vault::trust::{KeyRole, TrustStore, TrustedKey};
    let scratch = Scratch::new();
    let desk = KeyPair::from_seed(&[8; 32]);
    let envelope = sign_consent(&consent("ada"), &desk);
    let store = scratch.store();
    store.put(&record("ada", 1), &portrait(1), None).unwrap();
    let refused = store.grant_signed(&id("ada"), &envelope).unwrap_err();
    assert!(refused.to_string().contains("no trusted key of role consent"), "{refused}");
    drop(store);
    let mut trust = TrustStore::open(&Home::at(&scratch.0)).unwrap();
    trust
        .add(TrustedKey {
            public: desk.public(),
            name: "desk".to_owned(),
            roles: [KeyRole::Consent].into(),
            added: Wall(1),
            expires: None,
            revoked: None,
        })
        .unwrap();
    let store = scratch.store();
    let elsewhere = store.grant_signed(&id("bob"), &envelope).unwrap_err();
    assert!(elsewhere.to_string().contains("bob"), "{elsewhere}");
    let changed = envelope.replacen("\"sig\":\"A", "\"sig\":\"B", 1);
    let changed = if changed == envelope {
        envelope.replacen("\"sig\":\"", "\"sig\":\"A", 1)
    } else {
        changed
    };
    assert!(store.grant_signed(&id("ada"), &changed).is_err());
    let granted = store.grant_signed(&id("ada"), &envelope).unwrap();
    assert_eq!(store.grant_signed(&id("ada"), &envelope).unwrap(), granted, "once");
    let held = store.consents(Some(&id("ada"))).unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].record, Ok((desk.id(), consent("ada"))));
    assert_eq!(store.envelopes(&id("ada"), &granted).unwrap().0, envelope);
    // It is taken back here like any other.
    store.revoke(&id("ada"), None, Wall(1_800_000_000), "desk").unwrap();
    let held = store.consents(Some(&id("ada"))).unwrap();
    assert_eq!(held[0].record.as_ref().unwrap().1.revoked, Some(Wall(1_800_000_000)));
    assert_eq!(kinds(&store), [Kind::Enrol, Kind::Grant, Kind::Revoke]);
}
