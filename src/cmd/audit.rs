//! `mien audit`: shows the record, asks it, checks it, takes it out.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

use mien_base::clock::{SystemClock, Wall};
use mien_base::limits;
use mien_daemon::audit::{Fault, Kind, Link, Place, Statement, WHOLE, verify_file};
use mien_daemon::store::{Query, Segment, Store};
use mien_vault::Home;
use mien_vault::sign::PublicKey;

use super::error::{Error, Result};
use super::model_args::ListArgs;
use super::source_args::{AuditCommand, AuditQueryArgs, AuditVerifyArgs};
use super::{consent, out, record};

pub(crate) fn run(command: &AuditCommand) -> Result<()> {
    if let AuditCommand::Verify(args) = command
        && let Some(file) = &args.file
    {
        return verify_export(file, args);
    }
    let clock = Arc::new(SystemClock::start());
    let store = record::open(&Home::from_env()?, clock, false)?;
    match command {
        AuditCommand::Tail { rows, list } => {
            let most = usize::try_from(*rows).unwrap_or(usize::MAX);
            let mut found = store.query(&Query { most, ..Query::default() })?;
            found.reverse();
            show(&found, list)
        }
        AuditCommand::Query(args) => {
            let answer = store.query_all(&asked(args)?)?;
            for (first, last) in &answer.away {
                out::note(&format!(
                    "rows {first} to {last} are sealed in a segment whose file is not here: \
                     not looked into"
                ));
            }
            show(&answer.links, &args.list)
        }
        AuditCommand::Verify(args) => verify(&store, args),
        AuditCommand::Export { file, from, until, list } => {
            let (from, until) = (time(from.as_deref())?, time(until.as_deref())?);
            let export = store.export(file, from, until)?;
            let none = || Error::Usage("No row of the record stands there".to_owned());
            exported(file, &export.ok_or_else(none)?.statement, list)
        }
        AuditCommand::Seal { list } => {
            let none = || Error::Usage("The record is empty".to_owned());
            let sealed = store.seal()?.ok_or_else(none)?;
            exported(&sealed.file, &sealed.statement, list)
        }
        AuditCommand::Prune { days, list } => pruned(&store.prune(*days)?, list),
    }
}

/// A row as it is shown: its line, and its hash.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    line: serde_json::Value,
    hash: String,
}

fn show(links: &[Link], list: &ListArgs) -> Result<()> {
    if list.json {
        let rows: Vec<Row> = links
            .iter()
            .map(|link| {
                let line = link.row.line().map_err(mien_daemon::Error::from)?;
                let line = serde_json::from_str(&line).unwrap_or_default();
                Ok(Row { line, hash: link.hash.to_string() })
            })
            .collect::<Result<_>>()?;
        return out::json(&rows);
    }
    if links.is_empty() {
        return out::line("no row");
    }
    let rows: Vec<Vec<String>> = links.iter().map(words).collect();
    out::line(&out::table(&["row", "time", "kind", "camera", "who", "what"], &rows))
}

fn words(link: &Link) -> Vec<String> {
    let entry = &link.row.entry;
    let named = entry.faces.iter().filter_map(|face| face.who.as_ref()).chain(&entry.who);
    let mut who: Vec<&str> = named.map(|who| who.as_str()).collect();
    who.sort_unstable();
    who.dedup();
    let mut what: Vec<String> = Vec::new();
    if !entry.faces.is_empty() {
        let did: Vec<&str> = entry.faces.iter().map(|face| face.did.as_str()).collect();
        what.push(format!("faces: {}", did.join(", ")));
    }
    let told = ["outcome", "reason", "what", "command", "id", "scope", "expires", "operator"];
    for key in told {
        match entry.body.get(key) {
            None | Some(serde_json::Value::Null) => {}
            Some(serde_json::Value::String(text)) => what.push(format!("{key} {text}")),
            Some(other) => what.push(format!("{key} {other}")),
        }
    }
    vec![
        link.row.seq.to_string(),
        entry.at.to_string(),
        entry.kind.to_string(),
        entry.camera.clone().unwrap_or_default(),
        who.join(" "),
        what.join("; "),
    ]
}

fn asked(args: &AuditQueryArgs) -> Result<Query> {
    let kind = |word: &String| {
        let words: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
        let wrong = || Error::Usage(format!("`{word}` is no kind; they are {}", words.join(", ")));
        Kind::of_word(word).ok_or_else(wrong)
    };
    let job = |text: &String| {
        text.parse().map_err(|_| Error::Usage("--job takes 32 hex digits".to_owned()))
    };
    Ok(Query {
        from: time(args.from.as_deref())?,
        until: time(args.until.as_deref())?,
        camera: args.camera.clone(),
        place: args.region.as_deref().map(place).transpose()?,
        who: args.who.as_deref().map(consent::identity).transpose()?,
        kind: args.kind.as_ref().map(kind).transpose()?,
        job: args.job.as_ref().map(job).transpose()?,
        before: args.before,
        most: usize::try_from(args.most).unwrap_or(limits::AUDIT_ANSWER),
    })
}

fn time(text: Option<&str>) -> Result<Option<Wall>> {
    let wrong = |text: &str| {
        let must = "a date YYYY-MM-DD, a time YYYY-MM-DDThh:mm:ssZ, or seconds since 1970";
        Error::Usage(format!("`{text}` must be {must}"))
    };
    let read = |text: &str| {
        let seconds = text.parse().ok().map(Wall);
        seconds.or_else(|| mien_vault::consent::parse_time(text)).ok_or_else(|| wrong(text))
    };
    text.map(read).transpose()
}

/// `x0,y0,x1,y1` in percent.
fn place(text: &str) -> Result<Place> {
    let wrong = || {
        let must = "x0,y0,x1,y1 in percent of the picture, each from 0 to 100";
        Error::Usage(format!("--region `{text}` must be {must}"))
    };
    let part = |text: &str| {
        let share = text.trim().parse::<f64>().ok().filter(|v| (0.0..=100.0).contains(v))?;
        Some((share / 100.0 * f64::from(WHOLE)).round() as u16)
    };
    let parts: Option<Vec<u16>> = text.split(',').map(part).collect();
    match parts.as_deref() {
        Some(&[x0, y0, x1, y1]) if x0 <= x1 && y0 <= y1 => Ok([x0, y0, x1, y1]),
        _ => Err(wrong()),
    }
}

fn exported(file: &Path, statement: &Statement, list: &ListArgs) -> Result<()> {
    if list.json {
        return out::json(&json!({ "file": file, "statement": statement }));
    }
    let (first, last, key) = (statement.first, statement.last, statement.key);
    let at = file.display();
    out::line(&format!(
        "{at}: rows {first} to {last}, signed in {at}.sig by key {}\n\
         on any machine: mien audit verify {at} --key {key}",
        key.id()
    ))
}

fn pruned(gone: &[Segment], list: &ListArgs) -> Result<()> {
    if list.json {
        let gone: Vec<_> =
            gone.iter().map(|s| json!({ "first": s.first, "last": s.last })).collect();
        return out::json(&gone);
    }
    for Segment { first, last, until, .. } in gone {
        out::line(&format!("rows {first} to {last}, the newest of {until}: removed"))?;
    }
    if gone.is_empty() { out::line("no segment is that old") } else { Ok(()) }
}

fn verify(store: &Store, args: &AuditVerifyArgs) -> Result<()> {
    let mut faults = Vec::new();
    let mut segments = 0;
    for segment in store.sealed()? {
        let file = store.segment_file(&segment);
        // Who has taken it elsewhere checks it there; the chain goes on from its signed end.
        if file.exists() {
            let opened = open(&file)?;
            let found = verify_file(BufReader::new(opened), &segment.statement, None);
            let found = found.map_err(|source| unread(&file, source))?;
            segments += 1;
            let name = file.display();
            faults.extend(found.faults.iter().map(|fault| format!("{name}: {fault}")));
        }
    }
    let checked = store.verify()?;
    faults.extend(checked.faults.iter().map(Fault::to_string));
    let (last, hash) = checked.end;
    if args.list.json {
        out::json(&json!({
            "holds": faults.is_empty(),
            "rows": checked.rows,
            "segments": segments,
            "last": last,
            "hash": hash.to_string(),
            "signed": checked.signed,
            "faults": faults,
        }))?;
    } else {
        for fault in &faults {
            out::line(fault)?;
        }
        if faults.is_empty() {
            let (rows, signed) = (checked.rows, checked.signed);
            out::line(&format!(
                "the record holds: {rows} rows and {segments} sealed segments; last row {last}, \
                 hash {hash}; signed up to row {signed}"
            ))?;
        }
    }
    conclude(&faults)
}

fn conclude(faults: &[String]) -> Result<()> {
    let Some(first) = faults.first() else { return Ok(()) };
    let more = match faults.len() {
        1 => String::new(),
        n => format!(", and {} more", n - 1),
    };
    Err(Error::Check(format!("The record does not hold: {first}{more}")))
}

fn verify_export(file: &Path, args: &AuditVerifyArgs) -> Result<()> {
    let signature = args.signature.clone().unwrap_or_else(|| {
        let mut name = file.as_os_str().to_owned();
        name.push(".sig");
        PathBuf::from(name)
    });
    let key = args.key.as_deref().map(str::parse::<PublicKey>).transpose()?;
    let envelope = super::desk::read_text("Can't read the signature", &signature)?;
    let found = verify_file(BufReader::new(open(file)?), envelope.trim_end(), key.as_ref());
    let found = found.map_err(|source| unread(file, source))?;
    let faults: Vec<String> = found.faults.iter().map(Fault::to_string).collect();
    let signer = found.statement.as_ref().map(|statement| statement.key);
    if args.list.json {
        out::json(&json!({
            "holds": faults.is_empty(),
            "rows": found.rows,
            "statement": found.statement,
            "pinned": key.is_some(),
            "faults": faults,
        }))?;
    } else {
        for fault in &faults {
            out::line(fault)?;
        }
        if let (true, Some(signer)) = (faults.is_empty(), signer) {
            let rows = found.rows;
            let pinned = if key.is_some() {
                String::new()
            } else {
                "\nwhose key that is, the file can't prove: compare it, or give it with --key"
                    .to_owned()
            };
            out::line(&format!("the export holds: {rows} rows, signed by key {signer}{pinned}"))?;
        }
    }
    conclude(&faults)
}

fn open(file: &Path) -> Result<File> {
    let opened = File::open(file).map_err(|source| unread(file, source))?;
    // A pipe is read as it comes; a folder is none.
    if opened.metadata().is_ok_and(|meta| meta.is_dir()) {
        let source = std::io::Error::from(std::io::ErrorKind::IsADirectory);
        return Err(unread(file, source));
    }
    Ok(opened)
}

fn unread(file: &Path, source: std::io::Error) -> Error {
    Error::File { what: "Can't read", path: file.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_read_in_percent_and_nothing_else_is_one() {
        assert_eq!(place("0,0,50,100").unwrap(), [0, 0, 5000, 10_000]);
        assert_eq!(place("12.5, 0, 12.5, 1").unwrap(), [1250, 0, 1250, 100]);
        for bad in ["", "1,2,3", "1,2,3,4,5", "50,0,40,9", "0,0,101,1", "a,0,1,1", "NaN,0,1,1"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_dates_times_or_seconds() {
        let read = |text| time(Some(text)).unwrap();
        assert_eq!(read("2026-11-30").map(|t| t.to_string()).unwrap(), "2026-11-30T00:00:00Z");
        assert_eq!(read("2026-11-30T18:39:34Z"), Some(Wall(1_796_063_974)));
        assert_eq!(read("1796063974"), Some(Wall(1_796_063_974)));
        assert!(time(Some("yesterday")).is_err());
    }
}
