//! What a user of this machine may ask of its jobs, as words with a JSON table, and the answers.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{JobRow, Jobs, Via};
use crate::contract::{Do, Reason, Refusal};
use crate::errors::Result;
use crate::store::Store;

/// Jobs in one answer.
const LISTED: u64 = 500;
/// Longest wait for news, in seconds.
const LONGEST: u64 = 30;

/// An answer, or why there is none.
pub type Said = std::result::Result<Value, Refusal>;

fn wrong(at: &str, detail: &str) -> Refusal {
    Refusal::at(Reason::InvalidRequest, at, detail)
}

/// Answers a verb of `job.`; `user` is who asks.
///
/// # Errors
/// `Store…`.
pub fn answer(jobs: &Jobs, user: &str, verb: &str, args: &Value) -> Result<Said> {
    let none = Map::new();
    let args = args.as_object().unwrap_or(&none);
    let text = |key: &str| args.get(key).and_then(Value::as_str);
    let number = |key: &str| args.get(key).and_then(Value::as_u64);
    let store = jobs.store();
    match verb {
        "job.device" => Ok(Ok(json!({ "device": jobs.settings().topics.device() }))),
        "job.submit" => {
            let Some(document) = args.get("document").filter(|d| d.is_object()) else {
                return Ok(Err(wrong("/document", "must be a table")));
            };
            let bytes = serde_json::to_vec(document).expect("a value is JSON");
            let answer = jobs.submit(&Via::Local(user.to_owned()), false, &bytes)?;
            Ok(answer.outcome.map(|state| json!({ "job": state })))
        }
        "job.list" | "job.show" => {
            let said = read(store, verb, &Value::Object(args.clone()))?;
            Ok(said.unwrap_or_else(|| Err(unknown())))
        }
        "job.watch" => {
            let seen = number("seen").unwrap_or(0);
            let most = Duration::from_secs(number("wait_s").unwrap_or(LONGEST).min(LONGEST));
            let seen = jobs.wait(seen, most);
            let job = text("id").map(|id| store.job(id)).transpose()?.flatten();
            Ok(Ok(json!({ "seen": seen, "job": job.map(|job| job.told()) })))
        }
        _ => {
            let what = match verb {
                "job.cancel" => Do::Cancel,
                "job.pause" => Do::Pause,
                "job.resume" => Do::Resume,
                "job.reprioritise" => Do::Reprioritise,
                _ => {
                    let verbs = "submit, list, show, watch, cancel, pause, resume, reprioritise";
                    return Ok(Err(wrong("/verb", &format!("the verbs of jobs are {verbs}"))));
                }
            };
            let Some(id) = text("id") else { return Ok(Err(wrong("/id", "is missing"))) };
            let priority = number("priority").filter(|n| *n <= 9).map(|n| n as u8);
            if what == Do::Reprioritise && priority.is_none() {
                return Ok(Err(wrong("/priority", "must be 0 to 9")));
            }
            let moved = jobs.control(id, what, priority, number("expect_version"))?;
            Ok(moved.map(|job| json!({ "job": job.told() })))
        }
    }
}

/// Answers a verb that only looks; none when it does more.
///
/// # Errors
/// `Store`.
pub fn read(store: &Store, verb: &str, args: &Value) -> Result<Option<Said>> {
    Ok(Some(match verb {
        "job.list" => {
            let most = args.get("most").and_then(Value::as_u64).unwrap_or(50).min(LISTED);
            let most = usize::try_from(most).unwrap_or(50);
            let mut all = store.open_jobs(most)?;
            if args.get("open").and_then(Value::as_bool) != Some(true) {
                all.extend(store.ended_jobs(most.saturating_sub(all.len()))?);
            }
            Ok(json!({ "jobs": all.iter().map(JobRow::told).collect::<Vec<_>>() }))
        }
        "job.show" => match args.get("id").and_then(Value::as_str) {
            None => Err(wrong("/id", "is missing")),
            Some(id) => match store.job(id)? {
                None => Err(unknown()),
                Some(job) => Ok(json!({
                    "job": job.told(),
                    "document": job.document,
                    "issuer": job.issuer,
                    "execution": job.execution.to_string(),
                    "attempts": store.attempts(id)?,
                })),
            },
        },
        _ => return Ok(None),
    }))
}

fn unknown() -> Refusal {
    Refusal::new(Reason::UnknownJob, "there is no such job here")
}
