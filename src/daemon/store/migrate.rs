//! Numbered migrations: each is run once, in one transaction; none is ever edited.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::errors::{Error, Result, sql};

/// What each version adds to the one before, from 1 on. `schema.sql` is what all of them make.
const MIGRATIONS: [&str; 2] =
    [include_str!("migrations/0001.sql"), include_str!("migrations/0002.sql")];
/// `mien` in ASCII, in the file's header.
const APPLICATION: i64 = 0x6d69_656e;

/// Brings a database to this program's version; does nothing when it is there.
///
/// # Errors
/// `StoreForeign` for another program's file, or one of a newer version; `Store`, `StoreBusy`.
pub(super) fn run(conn: &mut Connection, path: &Path) -> Result<()> {
    let foreign = |why: String| Error::StoreForeign { path: path.to_owned(), why };
    if number(conn, "user_version")? == MIGRATIONS.len() as i64
        && number(conn, "application_id")? == APPLICATION
    {
        return Ok(());
    }
    let tx =
        conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql("begin"))?;
    // Another process may have been quicker: what counts is what stands now.
    let version = number(&tx, "user_version")?;
    let application = number(&tx, "application_id")?;
    let tables: i64 = tx
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(sql("read"))?;
    let ours = application == APPLICATION || (application == 0 && tables == 0);
    if !ours {
        return Err(foreign("it is not a database of mien".to_owned()));
    }
    let todo = usize::try_from(version).ok().and_then(|version| MIGRATIONS.get(version..));
    let Some(todo) = todo else {
        let known = MIGRATIONS.len();
        let why = format!("it has version {version}, and this program knows {known}; update mien");
        return Err(foreign(why));
    };
    for migration in todo {
        tx.execute_batch(migration).map_err(sql("migrate"))?;
    }
    tx.pragma_update(None, "application_id", APPLICATION).map_err(sql("migrate"))?;
    tx.pragma_update(None, "user_version", MIGRATIONS.len() as i64).map_err(sql("migrate"))?;
    tx.commit().map_err(sql("commit"))
}

fn number(conn: &Connection, pragma: &str) -> Result<i64> {
    conn.pragma_query_value(None, pragma, |row| row.get(0)).map_err(sql("read"))
}

/// What of the schema differs from this program's, by name: a trigger that is gone, a table that
/// was changed.
///
/// # Errors
/// `Store`.
pub(super) fn differences(conn: &Connection) -> Result<Vec<String>> {
    let expected = Connection::open_in_memory().map_err(sql("open"))?;
    expected.execute_batch(include_str!("schema.sql")).map_err(sql("migrate"))?;
    let (found, expected) = (items(conn)?, items(&expected)?);
    let mut names: Vec<String> = Vec::new();
    for item in expected.iter().filter(|item| !found.contains(item)) {
        let there = found.iter().any(|(name, _)| *name == item.0);
        names.push(format!("{} {}", item.0, if there { "was changed" } else { "is gone" }));
    }
    for item in &found {
        if !expected.iter().any(|(name, _)| *name == item.0) {
            names.push(format!("{} was added", item.0));
        }
    }
    Ok(names)
}

/// Each item of a schema with its SQL, white space made one, comments taken out.
fn items(conn: &Connection) -> Result<Vec<(String, String)>> {
    let mut statement = conn
        .prepare("SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema ORDER BY 1")
        .map_err(sql("read"))?;
    let rows = statement
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .map_err(sql("read"))?;
    let mut items = Vec::new();
    for row in rows {
        let (name, text) = row.map_err(sql("read"))?;
        // What ANALYZE keeps is no part of the schema.
        if name.contains("sqlite_stat") {
            continue;
        }
        let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default());
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        items.push((name, words.join(" ")));
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migrated() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        run(&mut conn, Path::new("x")).unwrap();
        conn
    }

    #[test]
    fn the_migrations_make_the_schema_that_is_commented() {
        assert!(differences(&migrated()).unwrap().is_empty());
    }

    #[test]
    fn a_schema_that_was_tampered_with_is_named() {
        let conn = migrated();
        conn.execute_batch(
            "DROP TRIGGER audit_remains; DROP INDEX audit_by_time;
             CREATE INDEX audit_by_time ON audit (seq); CREATE TABLE extra (x);",
        )
        .unwrap();
        let found = differences(&conn).unwrap();
        assert_eq!(
            found,
            [
                "index audit_by_time was changed",
                "trigger audit_remains is gone",
                "table extra was added"
            ]
        );
    }

    #[test]
    fn a_newer_database_and_another_programs_are_left_alone() {
        let mut conn = migrated();
        conn.pragma_update(None, "user_version", 99).unwrap();
        let error = run(&mut conn, Path::new("x")).unwrap_err();
        assert!(error.to_string().contains("version 99"), "{error}");
        let mut other = Connection::open_in_memory().unwrap();
        other.execute_batch("CREATE TABLE theirs (x)").unwrap();
        assert!(matches!(run(&mut other, Path::new("x")), Err(Error::StoreForeign { .. })));
        assert_eq!(number(&other, "application_id").unwrap(), 0);
    }

    #[test]
    fn running_again_changes_nothing() {
        let mut conn = migrated();
        conn.execute("UPDATE fact SET value = 7 WHERE name = 'policy'", []).unwrap();
        run(&mut conn, Path::new("x")).unwrap();
        let value: i64 = conn
            .query_row("SELECT value FROM fact WHERE name = 'policy'", [], |r| r.get(0))
            .unwrap();
        assert_eq!(value, 7);
    }
}
