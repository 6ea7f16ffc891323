//! Section 0 of the contract, asked of a mosquitto that we started, where it must hold, and of any
//! broker that `MIEN_BROKER` names, where it is only told.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::SystemClock;
use mien_daemon::contract::ROOT;
use mien_daemon::fleet::probe::{Probe, Row};
use mien_daemon::mqtt::packet::{Connect, Filter, Message, Properties, Version};
use mien_daemon::mqtt::{Broker, Client, Event, client_config};
use rustix::event::{EventfdFlags, eventfd};
use support::{Mosquitto, Scratch};

fn probe(url: &str) -> Vec<Row> {
    let broker = Broker::parse(url, None).unwrap();
    let name = format!("mien/probe-{}", std::process::id());
    Probe::new(&broker, &name, Arc::new(SystemClock::start())).unwrap().run(|_| ())
}

fn text(rows: &[Row]) -> String {
    let line =
        |row: &Row| format!("{:2} {:?} {}: {}", row.n, row.as_counted_on, row.question, row.found);
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// In place of a code: the broker ended the connection.
const ENDED: u8 = 0xff;

/// Connects, and gives what `play` sees: codes of what it publishes, messages that come.
fn play(
    broker: &Broker,
    client: &str,
    clean: bool,
    filter: Option<&str>,
    publish: Option<Message>,
) -> (bool, Vec<u8>, Vec<Message>) {
    let clock = Arc::new(SystemClock::start());
    let config = broker.tls.as_ref().map(|tls| client_config(tls).unwrap());
    let connect = Connect {
        version: Version::V5,
        client: client.to_owned(),
        clean,
        keep_alive: 30,
        user: None,
        password: None,
        properties: Properties { session_expiry: Some(60), ..Properties::default() },
        will: None,
    };
    let patience = Duration::from_secs(10);
    let (mut client, greeting) =
        Client::connect(broker, config.as_ref(), &connect, clock, patience).unwrap();
    let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    if let Some(filter) = filter {
        let filter = filter.to_owned();
        let filter = Filter { filter, no_retained: false, as_published: true, no_local: false };
        client.subscribe(vec![filter]).unwrap();
    }
    if let Some(message) = publish {
        client.publish(message).unwrap();
    }
    let (mut codes, mut messages) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        use std::os::fd::AsFd as _;
        let Ok(events) = client.wait(wake.as_fd(), Duration::from_millis(200)) else {
            codes.push(ENDED);
            break;
        };
        for event in events {
            match event {
                Event::Message(message) => messages.push(*message),
                Event::Taken { code, .. } => codes.push(code),
                Event::Subscribed { codes: granted, .. } => codes.extend(granted),
            }
        }
    }
    (greeting.session, codes, messages)
}

#[test]
#[ignore = "needs mosquitto: tests/run installs it"]
fn a_broker_does_what_the_contract_counts_on() {
    let scratch = Scratch::new("probe");
    let broker = Mosquitto::open(&scratch.0);
    let rows = probe(&format!("mqtt://127.0.0.1:{}", broker.port));
    println!("{}", text(&rows));
    assert_eq!(rows.len(), 14);
    let other: Vec<&Row> = rows.iter().filter(|row| row.as_counted_on != Some(true)).collect();
    assert!(other.is_empty(), "{other:#?}");
    if let Ok(url) = std::env::var("MIEN_BROKER") {
        println!("{url}:\n{}", text(&probe(&url)));
    }
}

#[test]
#[ignore = "needs mosquitto: tests/run installs it"]
fn after_a_kill_all_is_gone_and_without_a_right_only_a_publication_is_told() {
    let scratch = Scratch::new("probe-kill");
    let mut broker = Mosquitto::start(&scratch.0);
    let address = broker.address("dev-1");
    let own = |text: &str| Message {
        topic: format!("{ROOT}/{text}"),
        payload: b"x".to_vec(),
        qos1: true,
        retain: true,
        ..Message::default()
    };
    let own_filter = format!("{ROOT}/dev-1/job/#");
    let sent = play(&address, "dev-1", false, Some(&own_filter), Some(own("dev-1/job/a/state")));
    assert_eq!((sent.0, sent.1.clone()), (false, vec![1, 0]), "{sent:?}");
    let known = play(&address, "dev-1", false, Some(&own_filter), None);
    assert!(known.0 && !known.2.is_empty(), "it remembers session and retained state: {known:?}");
    broker.kill();
    broker.up();
    let lost = play(&address, "dev-1", false, Some(&own_filter), None);
    println!(" 7 after SIGKILL: session {}, {} retained", lost.0, lost.2.len());
    assert!(!lost.0 && lost.2.is_empty(), "{lost:?}");

    let foreign = play(&address, "dev-1", true, None, Some(own("dev-2/status")));
    let deaf = play(&address, "dev-1", true, Some(&format!("{ROOT}/dev-2/#")), None);
    println!("11 publish: {:02x?}; subscribe: {:02x?}", foreign.1, deaf.1);
    // Some answer, some end the connection (mosquitto 2.0.11 does one or both).
    let refused = foreign.1.iter().all(|code| [0x87, ENDED].contains(code));
    assert!(refused && !foreign.1.is_empty(), "{foreign:?}");
    assert_eq!(deaf.1, [1], "granted, and silent");
}
