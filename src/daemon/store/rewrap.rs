//! The sources' keys under another key of this machine: the faces stay as they are sealed.

use std::sync::PoisonError;

use mien_base::id::IdentityId;
use mien_vault::keyslot::DeviceKey;
use rusqlite::{Connection, params};

use super::keys::{Wrapping, wrapping};
use super::record::run;
use super::sealed::SourceKey;
use super::writer::When;
use super::{Store, sealed};
use crate::errors::{Error, Result, sql};

/// The keys as they stand in the database, by source.
fn stored(conn: &Connection) -> Result<Vec<(String, Vec<u8>)>> {
    let mut statement = conn
        .prepare_cached("SELECT identity, wrapped FROM source_key ORDER BY identity")
        .map_err(sql("be read"))?;
    let rows =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql("be read"))?;
    rows.map(|row| row.map_err(sql("be read"))).collect()
}

impl Store {
    /// What wraps the sources now.
    pub(super) fn wrapping(&self) -> SourceKey {
        let newer = self.newer.lock().unwrap_or_else(PoisonError::into_inner);
        SourceKey::new(*newer.as_ref().map_or_else(|| self.keys.wrapping(), Wrapping::key))
    }

    /// Wraps each source's key that `own` opens anew, for these keys of the machine alone; when it is
    /// one, this store works with it from then on. The table is written as a whole, so that no page
    /// keeps what stood there. How many there are.
    ///
    /// # Errors
    /// `StoreCommit` when sources changed meanwhile; `Vault(Random)`, `Store…`.
    pub fn rewrap(&self, own: &DeviceKey, devices: &[&DeviceKey]) -> Result<usize> {
        let own = wrapping(own);
        let mut devices: Vec<_> = devices.iter().map(|device| wrapping(device)).collect();
        let before = {
            let conn = self.reader();
            stored(&conn)?
        };
        let (mut after, mut count) = (before.clone(), 0);
        for (name, wrapped) in &mut after {
            // A name that is none belongs to nobody, and what `own` does not open is not its to wrap.
            let Ok(identity) = name.parse::<IdentityId>() else { continue };
            let Some(key) = sealed::unwrap(wrapped, &identity, own.key()) else { continue };
            wrapped.clear();
            for device in &devices {
                let mut nonce = [0; 12];
                self.fill(&mut nonce)?;
                wrapped.extend(sealed::wrap(&key, &identity, device.key(), nonce));
            }
            count += 1;
        }
        let all = count == before.len();
        let work = move |conn: &Connection| {
            if count == 0 {
                return Ok(());
            }
            if stored(conn)? != before {
                let detail = "sources were added or forgotten meanwhile; try again".to_owned();
                return Err(Error::StoreCommit { detail });
            }
            run(conn, "DELETE FROM source_key", [])?;
            for (identity, wrapped) in &after {
                let statement = "INSERT INTO source_key (identity, wrapped) VALUES (?1, ?2)";
                run(conn, statement, params![identity, wrapped])?;
            }
            Ok(())
        };
        self.write(When::Now, work).wait()?;
        if all && devices.len() == 1 {
            *self.newer.lock().unwrap_or_else(PoisonError::into_inner) = devices.pop();
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scratch, consent, id, portrait, record};
    use super::*;
    use mien_vault::SourceStore as _;
    use mien_vault::keyslot::{Keeper, KeyFile};
    use mien_vault::{Home, keyslot};

    #[test]
    fn sources_open_by_either_key_while_it_is_replaced_and_by_the_new_one_alone_afterwards() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        let store = scratch.store();
        store.put(&record("ada", 1), &portrait(1), Some(&consent("ada"))).unwrap();
        store.put(&record("bob", 2), &portrait(2), None).unwrap();
        let old = keyslot::load(&keyslot::sources(&home, None)).unwrap().unwrap();
        let new = DeviceKey::from_secret(&[5; 32], Keeper::File).unwrap();
        assert_eq!(store.rewrap(&old, &[&old, &new]).unwrap(), 2);
        // Killed here, before the new key stands in its place, all is as it was.
        assert_eq!(scratch.store().get(&id("ada")).unwrap().portrait, portrait(1));
        let stale = scratch.store();
        KeyFile::of(&home).store(&[5; 32]).unwrap();
        assert_eq!(scratch.store().get(&id("ada")).unwrap().portrait, portrait(1));
        assert_eq!(store.rewrap(&new, &[&new]).unwrap(), 2);
        let found = scratch.store().get(&id("bob")).unwrap();
        assert_eq!((found.portrait, found.record), (portrait(2), record("bob", 2)));
        // The old key opens nothing any more, and nothing is left that it would open.
        assert!(stale.get(&id("ada")).is_err());
        assert_eq!(store.get(&id("ada")).unwrap().portrait, portrait(1), "who did it goes on");
        assert_eq!(store.rewrap(&old, &[&old]).unwrap(), 0);
        let stands: Vec<_> = stored(&store.reader()).unwrap();
        assert!(stands.iter().all(|(_, wrapped)| wrapped.len() == 60));
        // What is forgotten afterwards is gone all the same.
        scratch.store().forget(&id("ada")).unwrap();
        assert_eq!(scratch.store().list().unwrap(), [id("bob")]);
    }
}
