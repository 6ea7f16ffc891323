//! Follows a chain row by row and names what does not hold.

use super::line::{BadEntry, Hash, Row, hash_of};

/// What does not hold at one place of a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("row {seq} was changed: its content has hash {found}, {stored} was recorded")]
    Changed { seq: u64, stored: Hash, found: Hash },
    #[error("rows {from} to {to} are missing")]
    Missing { from: u64, to: u64 },
    #[error("row {seq} stands where {expected} should: it was moved or inserted")]
    OutOfOrder { seq: u64, expected: u64 },
    #[error(
        "row {seq} does not follow row {}: it, or the row before, was replaced, moved or inserted",
        seq - 1
    )]
    Unlinked { seq: u64 },
    #[error("row {seq} can't be read: {why}")]
    Unreadable { seq: u64, why: &'static str },
    #[error("the signed head at row {seq} does not agree with the row: the record was rewritten")]
    Head { seq: u64 },
    #[error("the signature of the head at row {seq} does not hold for key {key}")]
    Signature { seq: u64, key: String },
    #[error("the record ends at row {last}, but row {signed} was signed: its end was cut off")]
    CutOff { last: u64, signed: u64 },
    #[error("{what}")]
    Broken { what: String },
}

/// A row as it is stored: what it says, and the hash that was recorded with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub row: Row,
    pub hash: Hash,
}

impl Link {
    /// A row with the hash of its line.
    ///
    /// # Errors
    /// `BadEntry` when the row has no line.
    pub fn of(row: Row) -> Result<Self, BadEntry> {
        let hash = hash_of(row.line()?.as_bytes());
        Ok(Self { row, hash })
    }
}

/// Most faults that are named; after them the record is just broken.
const NAMED: usize = 100;

/// A chain as far as it was followed.
#[derive(Debug, Clone)]
pub struct Chain {
    next: u64,
    /// Recorded hash of the last row.
    last: Hash,
    rows: u64,
    faults: Vec<Fault>,
}

impl Chain {
    /// A chain whose next row is `next` and follows `prev`.
    #[must_use]
    pub const fn from(next: u64, prev: Hash) -> Self {
        Self { next, last: prev, rows: 0, faults: Vec::new() }
    }

    /// A record from its first row on.
    #[must_use]
    pub const fn start() -> Self {
        Self::from(1, Hash::NONE)
    }

    /// Takes the next stored row. After a fault it goes on from what stands there, so that each
    /// fault is named once.
    pub fn follow(&mut self, link: &Link) {
        let seq = link.row.seq;
        self.link(seq, link.row.prev);
        match link.row.line() {
            Ok(line) => {
                let found = hash_of(line.as_bytes());
                if found != link.hash {
                    self.fault(Fault::Changed { seq, stored: link.hash, found });
                }
            }
            Err(BadEntry(why)) => self.fault(Fault::Unreadable { seq, why }),
        }
        self.next = seq.saturating_add(1).max(self.next);
        self.last = link.hash;
    }

    /// Takes the next stored row, of which is known that its line has this hash.
    pub fn follow_hashed(&mut self, seq: u64, prev: Hash, hash: Hash) {
        self.link(seq, prev);
        self.next = seq.saturating_add(1).max(self.next);
        self.last = hash;
    }

    fn link(&mut self, seq: u64, prev: Hash) {
        self.rows += 1;
        self.place(seq);
        if prev != self.last && !self.is_gap_before(seq) {
            self.fault(Fault::Unlinked { seq });
        }
    }

    /// A stored row that can't be read as one; `hash` is what was recorded with it.
    pub fn unreadable(&mut self, seq: u64, hash: Option<Hash>, why: &'static str) {
        self.rows += 1;
        self.place(seq);
        self.fault(Fault::Unreadable { seq, why });
        self.next = seq.saturating_add(1).max(self.next);
        if let Some(hash) = hash {
            self.last = hash;
        }
    }

    fn place(&mut self, seq: u64) {
        if seq > self.next {
            self.fault(Fault::Missing { from: self.next, to: seq - 1 });
        } else if seq < self.next {
            self.fault(Fault::OutOfOrder { seq, expected: self.next });
        }
    }

    /// True when the last thing named is that the rows before this one are missing: that it does
    /// not follow them is no news.
    fn is_gap_before(&self, seq: u64) -> bool {
        matches!(self.faults.last(), Some(Fault::Missing { to, .. }) if to + 1 == seq)
    }

    /// Names a fault.
    pub fn fault(&mut self, fault: Fault) {
        if self.faults.len() < NAMED {
            self.faults.push(fault);
        }
    }

    /// Number and hash of the last row; zero and the start before any.
    #[must_use]
    pub const fn end(&self) -> (u64, Hash) {
        (self.next.saturating_sub(1), self.last)
    }

    /// Rows that were followed.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// What does not hold, in the order in which it was found.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The faults alone.
    #[must_use]
    pub fn into_faults(self) -> Vec<Fault> {
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Entry, Kind};
    use mien_base::clock::Wall;
    use proptest::prelude::*;
    use serde_json::json;

    fn record(rows: u64) -> Vec<Link> {
        let mut prev = Hash::NONE;
        let link = |seq| {
            let entry = Entry::new(Kind::Config, Wall(1000 + seq), json!({"n": seq}));
            let link = Link::of(Row { seq, prev, entry }).unwrap();
            prev = link.hash;
            link
        };
        (1..=rows).map(link).collect()
    }

    fn faults(record: &[Link]) -> Vec<Fault> {
        let mut chain = Chain::start();
        record.iter().for_each(|link| chain.follow(link));
        chain.into_faults()
    }

    /// Gives a row a hash that fits, as a forger would.
    fn forge(link: &mut Link) {
        *link = Link::of(link.row.clone()).unwrap();
    }

    #[test]
    fn a_record_as_it_was_written_holds_and_knows_its_end() {
        let record = record(20);
        let mut chain = Chain::start();
        record.iter().for_each(|link| chain.follow(link));
        assert_eq!(chain.faults(), []);
        assert_eq!(chain.end(), (20, record[19].hash));
        let mut later = Chain::from(11, record[9].hash);
        record[10..].iter().for_each(|link| later.follow(link));
        assert_eq!((later.rows(), later.into_faults()), (10, vec![]));
    }

    #[test]
    fn a_changed_row_is_named_even_when_its_hash_was_changed_with_it() {
        let mut record = record(9);
        record[4].row.entry.body.insert("n".into(), json!(99));
        let found = faults(&record);
        assert!(matches!(found[..], [Fault::Changed { seq: 5, .. }]), "{found:?}");
        forge(&mut record[4]);
        assert_eq!(faults(&record), [Fault::Unlinked { seq: 6 }]);
    }

    #[test]
    fn a_deleted_row_is_named_even_when_the_others_move_up() {
        let mut record = record(9);
        record.remove(4);
        assert_eq!(faults(&record), [Fault::Missing { from: 5, to: 5 }]);
        for link in &mut record[4..] {
            link.row.seq -= 1;
        }
        let found = faults(&record);
        assert_eq!(found[0], Fault::Unlinked { seq: 5 });
        assert!(found[1..].iter().all(|f| matches!(f, Fault::Changed { .. })), "{found:?}");
    }

    #[test]
    fn swapped_rows_are_named() {
        let mut record = record(9);
        record.swap(3, 4);
        let found = faults(&record);
        assert_eq!(found[0], Fault::Missing { from: 4, to: 4 });
        assert!(found.contains(&Fault::OutOfOrder { seq: 4, expected: 6 }), "{found:?}");
        // With their numbers exchanged too.
        (record[3].row.seq, record[4].row.seq) = (4, 5);
        let found = faults(&record);
        assert_eq!(found[0], Fault::Unlinked { seq: 4 });
    }

    #[test]
    fn an_inserted_row_is_named() {
        let mut record = record(9);
        let mut extra = record[4].clone();
        extra.row.entry.body.insert("n".into(), json!(0));
        extra.row.prev = record[4].hash;
        forge(&mut extra);
        record.insert(5, extra);
        let found = faults(&record);
        assert_eq!(found[0], Fault::OutOfOrder { seq: 5, expected: 6 });
        assert!(found.contains(&Fault::Unlinked { seq: 6 }), "{found:?}");
    }

    proptest! {
        #[test]
        fn no_single_change_goes_unseen(at in 0_usize..12, what in 0..7) {
            let mut record = record(12);
            let link = &mut record[at];
            match what {
                0 => link.row.entry.at.0 += 1,
                1 => link.row.entry.kind = Kind::Stop,
                2 => link.row.prev.0[at] ^= 1,
                3 => link.hash.0[at] ^= 1,
                4 => link.row.entry.camera = Some("c".into()),
                5 => link.row.seq += 1,
                _ => link.row.entry.who = Some("eve".parse().unwrap()),
            }
            let found = faults(&record);
            prop_assert!(!found.is_empty());
            let named = found.iter().any(|f| f.to_string().contains(&(at + 1).to_string()));
            prop_assert!(named, "{found:?}");
        }

        #[test]
        fn no_forged_row_but_the_last_goes_unseen(at in 0_usize..11) {
            let mut record = record(12);
            record[at].row.entry.kind = Kind::Stop;
            forge(&mut record[at]);
            prop_assert!(!faults(&record).is_empty());
        }
    }
}
