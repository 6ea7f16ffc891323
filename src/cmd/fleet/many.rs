//! Many jobs: offered to a pool, or brought to many devices in waves.

use std::collections::BTreeSet;
use std::time::Duration;

use mien_base::clock::Clock as _;
use mien_daemon::contract::{Document, State, is_name};
use mien_daemon::fleet::operator::Heard;
use mien_daemon::fleet::pool::{Means, Pool};
use mien_daemon::fleet::rollout::{Rollout, Thresholds, Verdict, waves};
use serde_json::{Value, json};

use super::link::{Link, Signer, document, failed, table, tell, usage};
use crate::cmd::error::Result;
use crate::cmd::fleet_args::{PoolArgs, RolloutArgs};
use crate::cmd::{desk, job, out};

pub(super) fn pool(args: &PoolArgs) -> Result<()> {
    if !is_name(&args.pool) {
        return Err(usage("POOL", "1 to 64 of A-Z, a-z, 0-9, `-`, `_`"));
    }
    let signer = Signer::open(&args.job.signer)?;
    let params = match &args.jobs {
        Some(file) => desk::read_text("Can't read the jobs", file)?
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(table)
            .collect::<Result<Vec<_>>>()?,
        None => vec![table(&args.job.params)?],
    };
    let mut pool = Pool::new(Duration::from_secs(args.lease.max(1)));
    for params in &params {
        let id = job::random_id("pool")?;
        let to = format!("pool/{}", args.pool);
        pool.add(Document { fence: Some(1), ..document(&args.job, &to, &id, params, 1)? });
    }
    let mut link = Link::open(&args.reach, &["+/job/+/state"])?;
    let all = pool.open();
    while pool.open() > 0 {
        let mut numbers = signer.take(all as u64)?..;
        for offer in pool.due(link.clock.mono(), || numbers.next().unwrap_or(u64::MAX)) {
            link.send(&offer, &signer.key)?;
        }
        let turn = link.clock.mono();
        while link.clock.mono().since(turn) < Duration::from_secs(1) && pool.open() > 0 {
            let now = link.clock.mono();
            for heard in link.hear()? {
                let Heard::State { device, state, .. } = heard else { continue };
                if pool.heard(&device, &state, now) == Means::Accepted {
                    tell(&device, &state, args.reach.json)?;
                }
            }
        }
    }
    let good = pool.results().filter(|(_, state, ..)| *state == State::Succeeded).count();
    if good == all { Ok(()) } else { Err(failed(format!("{} of {all} failed", all - good))) }
}

pub(super) fn rollout(args: &RolloutArgs) -> Result<()> {
    let text = desk::read_text("Can't read the devices", &args.devices)?;
    let devices: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if let Some(bad) = devices.iter().find(|device| !is_name(device)) {
        return Err(usage("--devices", format!("`{bad}` is no name of a device")));
    }
    let unique: BTreeSet<&String> = devices.iter().collect();
    if unique.len() != devices.len() {
        return Err(usage("--devices", "a device stands there twice"));
    }
    let waves = waves(&devices, &args.waves).map_err(|why| usage("--waves", why))?;
    let signer = Signer::open(&args.job.signer)?;
    let params = table(&args.job.params)?;
    let id = job::random_id("roll")?;
    let mut link = Link::open(&args.reach, &[&format!("+/job/{id}/state")])?;
    let thresholds = Thresholds { success: args.success, failure: args.failure };
    let mut rollout = Rollout::new(waves, thresholds);
    let patience = Duration::from_secs(args.patience);
    let mut since = link.clock.mono();
    loop {
        match rollout.turn() {
            Verdict::Next => {
                since = link.clock.mono();
                let wave = rollout.wave().to_vec();
                let (n, of) = rollout.number();
                say(args, &json!({ "wave": n, "of": of, "devices": wave.len() }))?;
                let first = signer.take(wave.len() as u64)?;
                for (seq, device) in (first..).zip(&wave) {
                    link.send(&document(&args.job, device, &id, &params, seq)?, &signer.key)?;
                }
            }
            Verdict::Under => {}
            Verdict::Done => return say(args, &json!({ "job": id, "outcome": "done" })),
            Verdict::Aborted => {
                let (good, bad, open) = rollout.count();
                let count = json!({ "succeeded": good, "failed": bad, "open": open });
                say(args, &json!({ "job": id, "outcome": "aborted", "wave": count }))?;
                return Err(failed("The rollout was aborted: too many devices failed".to_owned()));
            }
        }
        for heard in link.hear()? {
            if let Heard::State { device, state, .. } = heard {
                rollout.ended(&device, state.state);
                if args.reach.json && state.state.is_end() {
                    tell(&device, &state, true)?;
                }
            }
        }
        if link.clock.mono().since(since) >= patience {
            for device in rollout.wave().to_vec() {
                rollout.ended(&device, State::TimedOut);
            }
        }
    }
}

fn say(args: &RolloutArgs, what: &Value) -> Result<()> {
    if args.reach.json {
        return out::line(&what.to_string());
    }
    let words: Vec<String> = what
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    out::line(&words.join(", "))
}
