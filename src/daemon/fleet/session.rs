//! Connects, says who is there, carries messages both ways, and begins anew when the broker is gone.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::Mono;
use serde_json::json;

use super::Shared;
use super::announce;
use super::drain::Drain;
use crate::mqtt::packet::{Connect, Filter, Message, Properties, Version};
use crate::mqtt::{Client, Event, Gone, Greeting};

/// How long a broker may take to greet.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often what is in the outbox is looked at when nobody rings.
const LOOK: Duration = Duration::from_secs(5);
/// How often the device says how it stands.
const HEALTH: Duration = Duration::from_secs(60);
/// How often the end of the record is signed and told.
const HEAD: Duration = Duration::from_secs(3600);
/// Messages of QoS 1 that the broker may have on the way to us.
const SLOTS: u16 = 8;
/// How long what is on the way is waited for at the end.
const FAREWELL: Duration = Duration::from_secs(3);

/// The main session, until the fleet stops.
pub(super) fn main(shared: &Arc<Shared>) {
    let mut tries = 0;
    while !shared.stopping() {
        let number = shared.status().connects + 1;
        let done = connect(shared, false, number).and_then(|(client, greeting)| {
            tries = 0;
            shared.status().connects = number;
            carry(shared, client, &greeting, number)
        });
        let mut status = shared.status();
        status.connected = false;
        if let Err(gone) = done {
            status.last_error = Some(gone.to_string());
        }
        drop(status);
        tries += 1;
        pause(shared, 0, tries);
    }
}

/// The session of the pools, until the fleet stops.
pub(super) fn pool(shared: &Arc<Shared>) {
    let mut tries = 0;
    while !shared.stopping() {
        let done = connect(shared, true, 0).and_then(|(client, _)| {
            tries = 0;
            offers(shared, client)
        });
        if let Err(gone) = done {
            shared.status().last_error = Some(format!("pool: {gone}"));
        }
        tries += 1;
        pause(shared, 1, tries);
    }
}

/// Waits before another try: anything up to twice as long as before, so that a fleet does not come
/// back as one.
fn pause(shared: &Shared, wake: usize, tries: u32) {
    let (first, most) = shared.settings.backoff;
    let longest = first.saturating_mul(1 << tries.min(16)).min(most);
    let wait = shared.random(longest.as_millis().max(1) as u64).max(50);
    let start = shared.clock.mono();
    let wait = Duration::from_millis(wait);
    while !shared.stopping() {
        let left = wait.saturating_sub(shared.clock.mono().since(start));
        if left.is_zero() {
            return;
        }
        let _ = wake;
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

fn connect(shared: &Shared, pool: bool, number: u64) -> Result<(Client, Greeting), Gone> {
    let settings = &shared.settings;
    let topics = shared.topics();
    // A clock that was never set can't judge age: only what is sent live may come.
    let untrusted = shared.clock.wall() < crate::jobs::NOT_SET;
    let clean = pool || untrusted;
    let will = (!pool).then(|| {
        let body = json!({
            "state": "offline",
            "boot_id": shared.jobs.settings().boot,
            "conn_seq": number,
            "at": shared.now_ms(),
        });
        let mut will = announce::told(topics.own("status"), &body, true, None);
        will.properties.will_delay = Some(settings.will_delay_s);
        will
    });
    let connect = Connect {
        version: settings.version,
        client: if pool { format!("{}-pool", topics.device()) } else { topics.device().to_owned() },
        clean,
        keep_alive: settings.keep_alive,
        user: settings.user.as_ref().map(|(user, _)| user.clone()),
        password: settings.user.as_ref().map(|(_, password)| password.clone()),
        properties: Properties {
            session_expiry: Some(if pool { 0 } else { settings.session_s }),
            receive_maximum: Some(SLOTS),
            maximum_packet: Some(crate::mqtt::packet::LARGEST as u32),
            ..Properties::default()
        },
        will,
    };
    let clock = shared.clock.clone();
    let config = if pool { &shared.pool_config } else { &shared.config };
    Client::connect(&settings.broker, config.as_ref(), &connect, clock, PATIENCE)
}

/// What to subscribe to: commands are never wanted as retained ones, and say so when they are.
fn filter(filter: String, retained: bool) -> Filter {
    Filter { filter, no_retained: !retained, as_published: true, no_local: true }
}

fn subscribe(shared: &Shared, client: &mut Client) -> Result<(), Gone> {
    let topics = shared.topics();
    let settings = &shared.settings;
    let groups = &shared.jobs.settings().groups;
    let all = topics.filters(groups, settings.commands, settings.discovery);
    let filters = all
        .into_iter()
        .map(|text| {
            let retained = text.ends_with("twin/desired");
            filter(text, retained)
        })
        .collect();
    client.subscribe(filters).map(drop)
}

/// One connection of the main session, until it is gone or the fleet stops.
fn carry(
    shared: &Arc<Shared>,
    mut client: Client,
    greeting: &Greeting,
    number: u64,
) -> Result<(), Gone> {
    // Said on every connect, whatever the broker says that it remembers.
    subscribe(shared, &mut client)?;
    let mut drain = Drain::new(shared, greeting)?;
    announce::arrive(shared, &mut drain, greeting, number)?;
    let (mut healthy, mut signed): (Option<Mono>, Option<Mono>) = (None, None);
    loop {
        let now = shared.clock.mono();
        if signed.is_none_or(|at| now.since(at) >= HEAD) {
            signed = Some(now);
            announce::head(shared)?.into_iter().for_each(|told| drain.now(told));
        }
        if healthy.is_none_or(|at| now.since(at) >= HEALTH) {
            healthy = Some(now);
            announce::health(shared).into_iter().for_each(|told| drain.now(told));
        }
        drain.fill(shared, &mut client)?;
        let stopping = shared.stopping();
        if stopping {
            return farewell(shared, client, drain, number);
        }
        let events = client.wait(shared.wakes.first().ok_or(NO_WAKE)?.as_fd(), LOOK)?;
        clear(shared, 0);
        for event in events {
            match event {
                Event::Message(message) => take(shared, &mut client, &mut drain, &message)?,
                Event::Taken { id, code } => drain.taken(shared, id, code),
                Event::Subscribed { codes, .. } => {
                    if let Some(code) = codes.iter().find(|code| **code >= 0x80) {
                        return Err(Gone::Refused {
                            code: *code,
                            reason: Some("a subscription".to_owned()),
                        });
                    }
                    shared.status().connected = true;
                }
            }
        }
        let (sent, received) = client.traffic();
        let mut status = shared.status();
        (status.sent_bytes, status.received_bytes) = (sent, received);
    }
}

const NO_WAKE: Gone = Gone::Protocol("no way to be woken");

fn clear(shared: &Shared, wake: usize) {
    if let Some(wake) = shared.wakes.get(wake) {
        let mut count = [0; 8];
        // Nothing there is as good.
        let _ = rustix::io::read(wake, &mut count);
    }
}

/// Takes one message in; it is acknowledged once what it became is on disk.
fn take(
    shared: &Arc<Shared>,
    client: &mut Client,
    drain: &mut Drain,
    message: &Message,
) -> Result<(), Gone> {
    let id = message.id;
    match super::incoming::take(shared, message) {
        Ok(answers) => {
            shared.status().took += 1;
            answers.into_iter().for_each(|answer| drain.now(answer));
            client.acknowledge(id)
        }
        // Not kept, so not acknowledged: the broker brings it again on the next connect.
        Err(error) => Err(error.into()),
    }
}

/// Says goodbye: then the broker sends no will.
fn farewell(
    shared: &Shared,
    mut client: Client,
    mut drain: Drain,
    number: u64,
) -> Result<(), Gone> {
    let body = json!({
        "state": "offline",
        "why": "stopped",
        "boot_id": shared.jobs.settings().boot,
        "conn_seq": number,
        "at": shared.now_ms(),
    });
    drain.now(announce::told(shared.topics().own("status"), &body, true, None));
    let start = shared.clock.mono();
    loop {
        drain.fill(shared, &mut client)?;
        if drain.is_idle() || shared.clock.mono().since(start) >= FAREWELL {
            break;
        }
        let wake = shared.wakes.first().ok_or(NO_WAKE)?.as_fd();
        clear(shared, 0);
        for event in client.wait(wake, Duration::from_millis(200))? {
            if let Event::Taken { id, code } = event {
                drain.taken(shared, id, code);
            }
        }
    }
    client.disconnect();
    Ok(())
}

/// One connection of the session of the pools.
fn offers(shared: &Arc<Shared>, mut client: Client) -> Result<(), Gone> {
    let topics = shared.topics();
    let pools = &shared.jobs.settings().pools;
    let filters = pools
        .iter()
        .map(|pool| Filter {
            // A shared subscription must not ask for no local messages.
            no_local: false,
            ..filter(topics.pool_filter(pool), false)
        })
        .collect();
    client.subscribe(filters)?;
    while !shared.stopping() {
        let events = client.wait(shared.wakes.get(1).ok_or(NO_WAKE)?.as_fd(), LOOK)?;
        clear(shared, 1);
        for event in events {
            if let Event::Message(message) = event {
                let id = message.id;
                super::incoming::take(shared, &message)?;
                client.acknowledge(id)?;
            }
        }
    }
    client.disconnect();
    Ok(())
}

/// True when properties can be sent.
pub(super) fn has_properties(shared: &Shared) -> bool {
    shared.settings.version == Version::V5
}
