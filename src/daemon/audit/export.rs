//! A record outside the database: lines, and beside them a signed statement of what they are.
//!
//! `FILE` holds one canonical line a row; `FILE.sig` is a DSSE envelope over the statement. Both
//! are checked on any machine, with nothing but the public key.

use std::io::{BufRead, Read as _, Write};

use mien_base::clock::Wall;
use mien_base::limits;
use mien_vault::sign::{Envelope, KeyPair, PublicKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::chain::{Chain, Fault, Link};
use super::head::{opened, signed};
use super::line::{Hash, Row, hash_of};

/// Payload type of a statement.
const EXPORT_TYPE: &str = "application/vnd.mien.audit-export.v1+json";

/// What a file of lines holds, as it is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// When it was exported.
    pub at: Wall,
    /// SHA-256 of the whole file.
    pub file: Hash,
    /// Number of the first and of the last row.
    pub first: u64,
    pub last: u64,
    /// What the first row follows, and the hash of the last.
    pub prev: Hash,
    pub head: Hash,
    /// Public key that signs.
    pub key: PublicKey,
}

/// Writes rows as lines and makes the statement over them.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    file: Sha256,
    first: Option<(u64, Hash)>,
    last: (u64, Hash),
}

impl<W: Write> Writer<W> {
    /// Into `out`; nothing is written yet.
    pub fn new(out: W) -> Self {
        Self { out, file: Sha256::new(), first: None, last: (0, Hash::NONE) }
    }

    /// Writes one row; `false` when it does not follow the row before, or has no line.
    ///
    /// # Errors
    /// Of the output.
    pub fn push(&mut self, link: &Link) -> std::io::Result<bool> {
        let follows = self.first.is_none() || {
            let (seq, hash) = self.last;
            link.row.seq == seq + 1 && link.row.prev == hash
        };
        let Some(mut line) = link.row.line().ok().filter(|_| follows) else { return Ok(false) };
        if hash_of(line.as_bytes()) != link.hash {
            return Ok(false);
        }
        line.push('\n');
        self.out.write_all(line.as_bytes())?;
        self.file.update(line.as_bytes());
        self.first.get_or_insert((link.row.seq, link.row.prev));
        self.last = (link.row.seq, link.hash);
        Ok(true)
    }

    /// The output, and the statement over what was written; `None` when nothing was.
    ///
    /// # Errors
    /// Of the output.
    pub fn finish(mut self, at: Wall, key: &KeyPair) -> std::io::Result<(W, Option<Export>)> {
        self.out.flush()?;
        let export = self.first.map(|(first, prev)| {
            let (last, head) = self.last;
            let file = Hash(self.file.finalize().into());
            let statement = Statement { at, file, first, last, prev, head, key: key.public() };
            let envelope = signed(EXPORT_TYPE, &statement, key);
            Export { statement, envelope }
        });
        Ok((self.out, export))
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    pub statement: Statement,
    /// The detached signature: what `FILE.sig` holds.
    pub envelope: String,
}

/// What a check of an export found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// As signed; `None` when the signature does not hold.
    pub statement: Option<Statement>,
    pub rows: u64,
    /// What does not hold; empty when the export is as it was signed.
    pub faults: Vec<Fault>,
}

/// Checks lines against a detached signature. With `key` the signature must be that key's; without
/// it must be the key's that the statement names, which the caller is to show.
///
/// # Errors
/// Of reading.
pub fn verify_file(
    lines: impl BufRead,
    envelope: &str,
    key: Option<&PublicKey>,
) -> std::io::Result<Verified> {
    follow_file(lines, envelope, key, |_| ())
}

/// The same, and hands each row that can be read to `see`. Whether the rows are to be believed is
/// known at the end.
///
/// # Errors
/// Of reading.
pub fn follow_file(
    mut lines: impl BufRead,
    envelope: &str,
    key: Option<&PublicKey>,
    mut see: impl FnMut(&Link),
) -> std::io::Result<Verified> {
    let key = key.copied().or_else(|| named_key(envelope));
    let statement = key.and_then(|key| {
        let statement: Statement = opened(EXPORT_TYPE, envelope, &key)?;
        (statement.key == key).then_some(statement)
    });
    let mut chain = match &statement {
        Some(said) => Chain::from(said.first, said.prev),
        None => Chain::start(),
    };
    if statement.is_none() {
        let what = match key {
            Some(key) => format!("the signature does not hold for key {}", key.id()),
            None => "the signature names no key".to_owned(),
        };
        chain.fault(Fault::Broken { what });
    }
    let mut file = Sha256::new();
    let mut line = Vec::new();
    let mut first = true;
    loop {
        line.clear();
        let most = limits::AUDIT_LINE as u64 + 2;
        let read = lines.by_ref().take(most).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        file.update(&line);
        let whole = line.pop_if(|last| *last == b'\n').is_some();
        let row = whole.then(|| std::str::from_utf8(&line).ok()).flatten();
        match row.map(Row::parse) {
            Some(Ok(row)) => {
                // Without a statement the first row says where the chain begins.
                if first && statement.is_none() {
                    let faults = chain.into_faults();
                    chain = Chain::from(row.seq, row.prev);
                    faults.into_iter().for_each(|fault| chain.fault(fault));
                }
                let link = Link { row, hash: hash_of(&line) };
                chain.follow(&link);
                see(&link);
            }
            Some(Err(bad)) => chain.unreadable(chain.end().0 + 1, None, bad.0),
            None if line.len() as u64 + 1 >= most => {
                chain.unreadable(chain.end().0 + 1, None, "its line is too long");
                break;
            }
            None => chain.unreadable(chain.end().0 + 1, None, "its line is cut off or no text"),
        }
        first = false;
    }
    if let Some(said) = &statement {
        conclude(&mut chain, said, Hash(file.finalize().into()));
    }
    Ok(Verified { statement, rows: chain.rows(), faults: chain.into_faults() })
}

/// What the statement says of the whole.
fn conclude(chain: &mut Chain, said: &Statement, file: Hash) {
    let (last, head) = chain.end();
    if last < said.last {
        chain.fault(Fault::CutOff { last, signed: said.last });
    } else if last > said.last {
        let what = format!("it goes on to row {last}, but {} was signed as its last", said.last);
        chain.fault(Fault::Broken { what });
    } else if head != said.head {
        chain.fault(Fault::Head { seq: last });
    }
    if file != said.file && chain.faults().is_empty() {
        let what = "its bytes are not those that were signed".to_owned();
        chain.fault(Fault::Broken { what });
    }
}

/// The key that a statement names, before anything of it holds.
fn named_key(envelope: &str) -> Option<PublicKey> {
    let envelope = Envelope::parse(envelope.as_bytes()).ok()?;
    let said: Statement = serde_json::from_slice(envelope.payload()).ok()?;
    Some(said.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Entry, Kind};
    use serde_json::json;

    fn key() -> KeyPair {
        KeyPair::from_seed(&[5; 32])
    }

    fn exported() -> (String, Export) {
        let mut prev = Hash([9; 32]);
        let mut writer = Writer::new(Vec::new());
        for seq in 41..=60 {
            let entry = Entry::new(Kind::Config, Wall(seq), json!({"n": seq}));
            let link = Link::of(Row { seq, prev, entry }).unwrap();
            prev = link.hash;
            assert!(writer.push(&link).unwrap());
        }
        let (bytes, export) = writer.finish(Wall(99), &key()).unwrap();
        (String::from_utf8(bytes).unwrap(), export.unwrap())
    }

    fn faults(text: &str, envelope: &str) -> Vec<Fault> {
        verify_file(text.as_bytes(), envelope, None).unwrap().faults
    }

    #[test]
    fn an_export_holds_with_its_signature_and_no_database() {
        let (text, export) = exported();
        let found = verify_file(text.as_bytes(), &export.envelope, Some(&key().public())).unwrap();
        assert_eq!((found.faults, found.rows), (vec![], 20));
        assert_eq!(found.statement, Some(export.statement.clone()));
        assert_eq!((export.statement.first, export.statement.last), (41, 60));
        assert_eq!(faults(&text, &export.envelope), []);
    }

    #[test]
    fn each_line_is_the_hash_of_the_one_before() {
        let (text, _) = exported();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            let by_hand = format!("\"prev\":\"{}\"", mien_vault::digest::of(pair[0].as_bytes()));
            assert!(pair[1].contains(&by_hand));
        }
    }

    #[test]
    fn every_change_to_an_export_is_found() {
        let (text, Export { envelope, .. }) = exported();
        let line = |n: usize| text.lines().nth(n).unwrap().to_owned() + "\n";
        let found = faults(&text.replace("\"n\":50", "\"n\":51"), &envelope);
        assert!(found.contains(&Fault::Unlinked { seq: 51 }), "{found:?}");
        let found = faults(&text.replace(&line(5), ""), &envelope);
        assert_eq!(found[0], Fault::Missing { from: 46, to: 46 });
        let found = faults(&text.replace(&line(19), ""), &envelope);
        assert_eq!(found[0], Fault::CutOff { last: 59, signed: 60 });
        let found = faults(&text.replace(&line(0), ""), &envelope);
        assert_eq!(found[0], Fault::Missing { from: 41, to: 41 });
        let found = faults(&(text.clone() + &line(19)), &envelope);
        assert_eq!(found[0], Fault::OutOfOrder { seq: 60, expected: 61 });
        let swapped = text.replace(&(line(3) + &line(4)), &(line(4) + &line(3)));
        assert!(!faults(&swapped, &envelope).is_empty());
        for cut in [1, 100] {
            assert!(!faults(&text[..text.len() - cut], &envelope).is_empty(), "{cut}");
        }
        assert!(!faults("", &envelope).is_empty());
        assert!(!faults(&"x".repeat(3 * limits::AUDIT_LINE), &envelope).is_empty());
    }

    #[test]
    fn a_rewritten_export_needs_the_key() {
        let (text, export) = exported();
        let forger = KeyPair::from_seed(&[6; 32]);
        let said = Statement { key: forger.public(), ..export.statement.clone() };
        let forged = signed(EXPORT_TYPE, &said, &forger);
        let found = verify_file(text.as_bytes(), &forged, Some(&key().public())).unwrap();
        assert!(found.statement.is_none() && !found.faults.is_empty());
        // Signed by one key, naming another.
        let said = signed(EXPORT_TYPE, &export.statement, &forger);
        assert!(!faults(&text, &said).is_empty());
        for bad in ["", "{}", &export.envelope.replace("\"sig\":\"", "\"sig\":\"A")] {
            assert!(!faults(&text, bad).is_empty());
        }
    }

    #[test]
    fn what_does_not_hold_is_not_exported() {
        let entry = Entry::new(Kind::Stop, Wall(1), json!({}));
        let good = Link::of(Row { seq: 1, prev: Hash::NONE, entry }).unwrap();
        let mut writer = Writer::new(Vec::new());
        let wrong_hash = Link { hash: Hash([1; 32]), ..good.clone() };
        assert!(!writer.push(&wrong_hash).unwrap());
        assert!(writer.push(&good).unwrap());
        assert!(!writer.push(&good).unwrap());
        let nothing = Writer::new(Vec::new()).finish(Wall(1), &key()).unwrap();
        assert!(nothing.1.is_none());
    }
}
