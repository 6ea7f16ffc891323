//! One job: ordered, answered, steered.

use std::collections::BTreeMap;
use std::time::Duration;

use mien_base::clock::Clock as _;
use mien_daemon::contract::{CONTROL, Control, Do, State};
use mien_daemon::fleet::operator::{self, Heard};

use super::link::{Link, Signer, document, failed, lost, table, tell};
use crate::cmd::error::Result;
use crate::cmd::fleet_args::{FleetSubmitArgs, SteerArgs};
use crate::cmd::{job, out};

pub(super) fn submit(args: &FleetSubmitArgs) -> Result<()> {
    let signer = Signer::open(&args.job.signer)?;
    let id = args.id.clone().map_or_else(|| job::random_id("job"), Ok)?;
    let params = table(&args.job.params)?;
    let document = document(&args.job, &args.to, &id, &params, signer.take(1)?)?;
    let (states, reply) = (format!("+/job/{id}/state"), format!("+/reply/{}", args.reach.client));
    let mut link = Link::open(&args.reach, &[&states, &reply])?;
    link.order(&document, &signer.key, &args.reach.client)?;
    if args.no_wait {
        link.finish()?;
        return out::line(&id);
    }
    let many = args.to.contains('/');
    let patience = Duration::from_secs(args.job.expires + u64::from(document.timeout()));
    // What was retained before is of an earlier order, until the device says it is this one.
    let (mut answered, mut told) = (many, BTreeMap::new());
    loop {
        if link.clock.mono().0 >= patience {
            return Err(failed(format!("{id}: nothing was heard of it")));
        }
        for heard in link.hear()? {
            let (device, state) = match heard {
                Heard::State { device, state, retained } if answered || !retained => {
                    (device, state)
                }
                Heard::Told { device, what, payload, .. } if what.starts_with("reply/") => {
                    match operator::answer(&payload) {
                        Err(refusal) => return Err(failed(format!("{device}: {refusal}"))),
                        Ok(Some(state)) if state.id == id => (device, Box::new(state)),
                        Ok(_) => continue,
                    }
                }
                _ => continue,
            };
            answered = true;
            // The answer and the state say the same.
            let known = told.insert(device.clone(), (state.version, state.progress.clone()));
            if known.is_some_and(|known| known == (state.version, state.progress.clone())) {
                continue;
            }
            tell(&device, &state, args.reach.json)?;
            if state.state.is_end() && !many {
                return match state.state {
                    State::Succeeded => Ok(()),
                    other => Err(failed(format!("{id} on {device} ended as {other}"))),
                };
            }
        }
    }
}

pub(super) fn steer(args: &SteerArgs, what: Do) -> Result<()> {
    let signer = Signer::open(&args.signer)?;
    let topic = format!("{}/job/{}/state", args.device, args.job);
    let mut link = Link::open(&args.reach, &[&topic])?;
    let now = link.clock.wall().0.saturating_mul(1000);
    let control = Control {
        schema: CONTROL.to_owned(),
        job: args.job.clone(),
        r#do: what,
        issuer: args.signer.clone(),
        issued_at: now,
        expires_at: now + 60_000,
        audience: args.device.clone(),
        seq: signer.take(1)?,
        expect_version: args.expect_version,
        priority: None,
    };
    link.operator.control(&args.device, &control, &signer.key).map_err(lost(&args.reach.broker))?;
    let wanted = |state: State| match what {
        Do::Cancel => state.is_end(),
        Do::Pause => state == State::Paused || state.is_end(),
        Do::Resume | Do::Reprioritise => state != State::Paused,
    };
    while link.clock.mono().0 < Duration::from_secs(60) {
        for heard in link.hear()? {
            if let Heard::State { device, state, .. } = heard
                && wanted(state.state)
            {
                return tell(&device, &state, args.reach.json);
            }
        }
    }
    Err(failed(format!("{} does not answer", args.device)))
}
