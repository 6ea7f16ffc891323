//! Sealed segments in use: made by themselves, asked like the rows of the database, let go when old.
//!
//! ```text
//!   rows of the database ─(full, or a quarter old)─▶ segment: file + signature ─(180 days, on
//!   demand)─▶ segment without its file: the chain still goes on from its signed end
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;

use mien_base::clock::Wall;
use mien_base::limits;
use serde_json::json;

use super::Store;
use super::query::Query;
use super::segment::{Sealed, Segment, between};
use crate::audit::{Entry, Fault, Kind, Link, follow_file};
use crate::errors::{Error, Result, file, sql};

/// Age of the oldest row at which what stands in the database is sealed, in seconds.
const QUARTER: u64 = 90 * 86_400;

/// What a question to the whole record found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Rows that match, newest first.
    pub links: Vec<Link>,
    /// Sealed segments that were looked into, each followed and held against its signature.
    pub searched: usize,
    /// Sealed segments that would have been, but whose files are not here: first and last row.
    pub away: Vec<(u64, u64)>,
}

impl Store {
    /// Seals what stands in the database when it is full or its oldest row is a quarter of a year
    /// old. Who keeps a store open calls it now and then, who opens one for a moment once.
    ///
    /// # Errors
    /// As `seal`.
    pub fn tend(&self) -> Result<Option<Sealed>> {
        let due = {
            let conn = self.reader();
            let Some((first, last)) = between(&conn, None, None)? else { return Ok(None) };
            let oldest: u64 = conn
                .query_row("SELECT min(at) FROM audit", [], |row| row.get(0))
                .map_err(sql("be read"))?;
            let age = self.clock.wall().0.saturating_sub(oldest);
            last + 1 - first >= limits::AUDIT_SEGMENT || age >= QUARTER
        };
        if due { self.seal() } else { Ok(None) }
    }

    /// Rows that match, newest first: of the database, and where those are fewer than asked for, of
    /// the sealed segments before it.
    ///
    /// # Errors
    /// As `query`; `AuditBroken` for a segment that does not hold, `File`.
    pub fn query_all(&self, query: &Query) -> Result<Answer> {
        let links = self.query(query)?;
        let most = query.most.min(limits::AUDIT_ANSWER);
        let mut answer = Answer { links, searched: 0, away: Vec::new() };
        for segment in self.sealed()?.iter().rev() {
            if answer.links.len() >= most {
                break;
            }
            let late = query.from.is_some_and(|from| segment.until < from);
            let beyond = query.before.is_some_and(|before| segment.first >= before);
            if late || beyond {
                continue;
            }
            if !self.segment_file(segment).exists() {
                answer.away.push((segment.first, segment.last));
                continue;
            }
            let found = self.look_into(segment, query, most - answer.links.len())?;
            answer.links.extend(found);
            answer.searched += 1;
        }
        Ok(answer)
    }

    /// The newest `most` rows of a segment that match, newest first.
    fn look_into(&self, segment: &Segment, query: &Query, most: usize) -> Result<Vec<Link>> {
        let path = self.segment_file(segment);
        let opened = File::open(&path).map_err(file("open", &path))?;
        let mut newest = VecDeque::new();
        let found = follow_file(BufReader::new(opened), &segment.statement, None, |link| {
            if query.admits(link) {
                if newest.len() == most {
                    newest.pop_front();
                }
                newest.push_back(link.clone());
            }
        });
        let found = found.map_err(file("read", &path))?;
        let broken = |first, faults| Err(Error::AuditBroken { first, faults });
        if let Some(first) = found.faults.first() {
            return broken(first.clone(), found.faults.len());
        }
        let signed = found.statement.filter(|said| self.keys.trusts_head(&said.key));
        if signed.is_none_or(|said| (said.first, said.last) != (segment.first, segment.last)) {
            let what = format!("`{}` is not the segment that was sealed", path.display());
            return broken(Fault::Broken { what }, 1);
        }
        let mut newest = Vec::from(newest);
        newest.sort_by_key(|link| std::cmp::Reverse((link.row.entry.at, link.row.seq)));
        Ok(newest)
    }

    /// Lets go of the files of segments whose newest row is older than `days`, the oldest first: the
    /// record says so before each, and the chain holds without them. `AUDIT_DAYS` at least.
    ///
    /// # Errors
    /// `File`, `Store…`.
    pub fn prune(&self, days: u64) -> Result<Vec<Segment>> {
        let kept = days.max(limits::AUDIT_DAYS).saturating_mul(86_400);
        let before = Wall(self.clock.wall().0.saturating_sub(kept));
        let mut gone = Vec::new();
        for segment in self.sealed()? {
            let path = self.segment_file(&segment);
            if segment.until >= before || !path.exists() {
                continue;
            }
            let body = json!({
                "pruned": true,
                "first": segment.first,
                "last": segment.last,
                "until": segment.until.to_string(),
            });
            self.append(Entry::new(Kind::Export, self.clock.wall(), body))?;
            let mut signature = path.clone().into_os_string();
            signature.push(".sig");
            std::fs::remove_file(&path).map_err(file("remove", &path))?;
            let _ = std::fs::remove_file(signature);
            gone.push(segment);
        }
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scratch, day, entry, id};
    use super::super::writer::When;
    use super::*;
    use std::time::Duration;

    fn asked(most: usize) -> Query {
        Query { most, ..Query::default() }
    }

    /// Two sealed segments of forty rows each, and twenty rows in the database.
    fn three(scratch: &Scratch) -> (Store, Vec<Link>) {
        let store = scratch.store();
        let mut links = Vec::new();
        for (from, until) in [(0, 40), (40, 80), (80, 100)] {
            let tickets: Vec<_> =
                (from..until).map(|n| store.append_when(When::Soon, day(n))).collect();
            links.extend(tickets.into_iter().map(|ticket| ticket.wait().unwrap()));
            if until < 100 {
                store.seal().unwrap().unwrap();
            }
        }
        (store, links)
    }

    #[test]
    fn a_question_goes_on_into_sealed_segments_and_finds_the_same_there() {
        let scratch = Scratch::new();
        let (store, links) = three(&scratch);
        let all = store.query_all(&asked(1000)).unwrap();
        // Each segment left a row that says so.
        assert_eq!((all.links.len(), all.searched, all.away.len()), (102, 2, 0));
        assert!(all.links.windows(2).all(|pair| pair[0].row.seq > pair[1].row.seq));
        for link in &links {
            assert!(all.links.contains(link), "row {}", link.row.seq);
        }
        let newest = store.query_all(&asked(5)).unwrap();
        assert_eq!((newest.links, newest.searched), (all.links[..5].to_vec(), 0));
        // What the database finds by its indexes, a segment finds by looking.
        let places = [[0, 0, 3000, 3000], [5000, 5000, 9999, 9999]];
        for place in places.map(Some).into_iter().chain([None]) {
            for who in [None, Some(id("ada")), Some(id("nobody"))] {
                let query = Query { place, who, most: 1000, ..Query::default() };
                let wanted: Vec<Link> =
                    all.links.iter().filter(|link| query.admits(link)).cloned().collect();
                assert_eq!(store.query_all(&query).unwrap().links, wanted, "{query:?}");
            }
        }
    }

    #[test]
    fn a_segment_that_was_changed_is_named_and_one_that_is_away_is_told() {
        let scratch = Scratch::new();
        let (store, _) = three(&scratch);
        let path = store.segment_file(&store.sealed().unwrap()[0]);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("cam", "cax", 1)).unwrap();
        let error = store.query_all(&asked(1000)).unwrap_err();
        assert!(matches!(error, Error::AuditBroken { .. }), "{error}");
        std::fs::remove_file(&path).unwrap();
        let found = store.query_all(&asked(1000)).unwrap();
        assert_eq!((found.searched, found.away), (1, vec![(1, 40)]));
    }

    #[test]
    fn rows_are_sealed_by_themselves_once_the_oldest_is_a_quarter_old() {
        let scratch = Scratch::new();
        let (store, clock) = scratch.store_at(Wall(1_800_000_000));
        assert_eq!(store.tend().unwrap(), None);
        store.append(entry(0)).unwrap();
        clock.advance(Duration::from_secs(QUARTER - 1));
        assert_eq!(store.tend().unwrap(), None);
        clock.advance(Duration::from_secs(1));
        assert_eq!(store.tend().unwrap().unwrap().statement.last, 1);
        assert_eq!(store.tend().unwrap(), None, "what was sealed begins anew");
    }

    #[test]
    fn old_segments_go_when_told_and_never_before_half_a_year_and_the_chain_holds() {
        let scratch = Scratch::new();
        let (store, clock) = scratch.store_at(Wall(1_800_000_000));
        store.append(entry(0)).unwrap();
        store.seal().unwrap().unwrap();
        clock.advance(Duration::from_secs(180 * 86_400));
        assert_eq!(store.prune(1).unwrap(), []);
        clock.advance(Duration::from_secs(1));
        let gone = store.prune(1).unwrap();
        assert_eq!((gone[0].first, gone[0].last, gone.len()), (1, 1, 1));
        assert!(!store.segment_file(&gone[0]).exists());
        assert_eq!(store.prune(180).unwrap(), []);
        assert_eq!(store.verify().unwrap().faults, []);
        let told = store.query(&asked(1)).unwrap().remove(0).row.entry;
        assert_eq!((told.kind, &told.body["pruned"]), (Kind::Export, &json!(true)));
        assert_eq!(store.sealed().unwrap().len(), 1, "that it was is kept");
    }
}
