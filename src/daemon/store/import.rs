//! Takes over the sources that versions before kept as files; each is whole here or there.
//!
//! ```text
//!   read and checked ──▶ source, key, consent (signed now), row "import"   one transaction
//!                    ──▶ files overwritten and unlinked
//! ```
//! Killed in between, a source stands in both: the next run sees that it is the same, and erases.

use mien_base::id::IdentityId;
use mien_vault::{Home, OldStore, SourceStore as _};

use super::Store;
use crate::audit::Kind;
use crate::errors::Result;

/// What became of the old files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// Sources that are now in the database.
    pub taken: Vec<IdentityId>,
    /// Sources that stay as files, and why: those of which another one is in the database, and
    /// damaged ones.
    pub left: Vec<(IdentityId, String)>,
}

impl Store {
    /// Takes over what stands in the old folder of this home.
    ///
    /// # Errors
    /// `Vault` when the files can't be erased, `Store…`. What was taken over until then stays.
    pub fn import(&self, home: &Home) -> Result<Imported> {
        let mut imported = Imported::default();
        let Some(old) = OldStore::find(home)? else { return Ok(imported) };
        for id in old.list()? {
            let found = match old.get(&id) {
                Ok(found) => found,
                Err(error) => {
                    imported.left.push((id, error.to_string()));
                    continue;
                }
            };
            if self.list()?.contains(&id) {
                if self.get(&id)?.record != found.record {
                    let why = "another source of this name is in the database";
                    imported.left.push((id, why.to_owned()));
                    continue;
                }
            } else {
                let new = self.seal_source(
                    Kind::Import,
                    &found.record,
                    &found.portrait,
                    &found.consents,
                )?;
                self.insert(new)?;
                imported.taken.push(id.clone());
            }
            old.erase(&id)?;
        }
        old.close();
        Ok(imported)
    }
}
