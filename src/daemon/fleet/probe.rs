//! What a broker really does, asked of the broker itself: section 0 of the contract as a suite.
//!
//! Each row is a small play of two or three clients; it tells what was found and whether that is what
//! the contract was built on. Nothing is retained or subscribed afterwards.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::Clock;
use rustix::event::{EventfdFlags, eventfd};
use rustls::ClientConfig;
use serde::Serialize;

use crate::errors::{Error, Result};
use crate::mqtt::packet::{Connect, Filter, Message, Properties, Version};
use crate::mqtt::{Broker, Client, Event, Gone, Greeting, client_config};

/// How long a greeting or an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing must come until nothing comes.
const QUIET: Duration = Duration::from_millis(700);
/// Messages for a client that is away.
const MANY: usize = 1300;

/// What a row found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its number in the contract.
    pub n: u8,
    pub question: &'static str,
    pub found: String,
    /// It is what the contract counts on; none: this broker could not be asked.
    pub as_counted_on: Option<bool>,
}

/// What a play ends with.
type Played = std::result::Result<(String, bool), Gone>;
/// One row: number, question, play.
type Play = (u8, &'static str, fn(&Probe) -> Played);

const PLAYS: &[Play] = &[
    (1, "a pool with a member that is away but remembered", one_away),
    (2, "a remembered member dies with two jobs in hand", dies_remembered),
    (3, "a forgotten member dies with two jobs in hand", dies_forgotten),
    (4, "an offer when nobody of the pool is there", nobody),
    (5, "a retained message on a shared subscription", retained_shared),
    (6, "1300 messages for a client that is away", many),
    (8, "a message that expires while its reader is away", expires),
    (9, "a will with a delay", will),
    (10, "response topic, correlation, content type, user properties", properties),
    (12, "a message larger than its reader takes", too_large),
    (13, "one message at a time", one_at_a_time),
    (14, "no retained messages, and none of one's own", quiet_filters),
    (15, "a message that was not acknowledged", again),
    (16, "two clients of one name", twins),
];

/// A broker that is asked.
pub struct Probe {
    broker: Broker,
    config: Option<Arc<ClientConfig>>,
    clock: Arc<dyn Clock>,
    name: String,
    wake: OwnedFd,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").field("broker", &self.broker).finish_non_exhaustive()
    }
}

/// How a client connects.
struct As<'a> {
    name: &'a str,
    clean: bool,
    expiry: u32,
    receive: Option<u16>,
    largest: Option<u32>,
    will: Option<Message>,
}

fn plain(name: &str) -> As<'_> {
    As { name, clean: true, expiry: 0, receive: None, largest: None, will: None }
}

fn remembered(name: &str) -> As<'_> {
    As { clean: false, expiry: 60, ..plain(name) }
}

fn filter(text: &str) -> Filter {
    Filter { filter: text.to_owned(), no_retained: false, as_published: true, no_local: false }
}

fn text(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|m| String::from_utf8_lossy(&m.payload).into_owned()).collect()
}

impl Probe {
    /// Below topics and with clients that begin with `name`.
    ///
    /// # Errors
    /// `Broker`, `File`, `Thread`.
    pub fn new(broker: &Broker, name: &str, clock: Arc<dyn Clock>) -> Result<Self> {
        let config = broker.tls.as_ref().map(client_config).transpose()?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| Error::Thread { name: "probe", source: errno.into() })?;
        Ok(Self { broker: broker.clone(), config, clock, name: name.to_owned(), wake })
    }

    /// Plays every row; `told` hears of each as it ends.
    pub fn run(&self, mut told: impl FnMut(&Row)) -> Vec<Row> {
        let mut rows = Vec::new();
        for (n, question, play) in PLAYS {
            let (found, as_counted_on) = match play(self) {
                Ok((found, counted)) => (found, Some(counted)),
                Err(gone) => (gone.to_string(), None),
            };
            let row = Row { n: *n, question, found, as_counted_on };
            told(&row);
            rows.push(row);
        }
        rows
    }

    fn topic(&self, rest: &str) -> String {
        format!("{}/{rest}", self.name)
    }

    fn connect(&self, how: &As<'_>) -> std::result::Result<(Client, Greeting), Gone> {
        let connect = Connect {
            version: Version::V5,
            client: format!("{}-{}", self.name.replace('/', "-"), how.name),
            clean: how.clean,
            keep_alive: 30,
            user: None,
            password: None,
            properties: Properties {
                session_expiry: Some(how.expiry),
                receive_maximum: how.receive,
                maximum_packet: how.largest,
                ..Properties::default()
            },
            will: how.will.clone(),
        };
        Client::connect(&self.broker, self.config.as_ref(), &connect, self.clock.clone(), PATIENCE)
    }

    fn client(&self, how: &As<'_>) -> std::result::Result<Client, Gone> {
        self.connect(how).map(|(client, _)| client)
    }

    /// Ends what the broker remembers of a client.
    fn forget(&self, name: &str) -> std::result::Result<(), Gone> {
        self.client(&plain(name)).map(Client::disconnect)
    }

    fn subscribe(&self, client: &mut Client, filter: Filter) -> std::result::Result<(), Gone> {
        let wanted = client.subscribe(vec![filter])?;
        let start = self.clock.mono();
        while self.clock.mono().since(start) < PATIENCE {
            for event in client.wait(self.wake.as_fd(), QUIET)? {
                if let Event::Subscribed { id, codes } = event
                    && id == wanted
                {
                    return match codes.first() {
                        Some(code) if *code >= 0x80 => {
                            let reason = Some("a subscription".to_owned());
                            Err(Gone::Refused { code: *code, reason })
                        }
                        _ => Ok(()),
                    };
                }
            }
        }
        Err(Gone::Silent(PATIENCE))
    }

    /// What comes until nothing does; acknowledged or not.
    fn hear(&self, client: &mut Client, take: bool) -> std::result::Result<Vec<Message>, Gone> {
        self.hear_for(client, take, QUIET)
    }

    fn hear_for(
        &self,
        client: &mut Client,
        take: bool,
        quiet: Duration,
    ) -> std::result::Result<Vec<Message>, Gone> {
        let (mut all, mut last) = (Vec::new(), self.clock.mono());
        while self.clock.mono().since(last) < quiet {
            for event in client.wait(self.wake.as_fd(), quiet / 4)? {
                if let Event::Message(message) = event {
                    last = self.clock.mono();
                    if take {
                        client.acknowledge(message.id)?;
                    }
                    all.push(*message);
                }
            }
        }
        Ok(all)
    }

    /// Publishes, and waits for the broker's codes.
    fn publish(
        &self,
        client: &mut Client,
        messages: Vec<Message>,
    ) -> std::result::Result<Vec<u8>, Gone> {
        let (mut open, mut codes, mut waiting) = (0, Vec::new(), messages.into_iter());
        loop {
            while open < 16 {
                let Some(message) = waiting.next() else { break };
                client.publish(message)?;
                open += 1;
            }
            if open == 0 {
                return Ok(codes);
            }
            let start = self.clock.mono();
            for event in client.wait(self.wake.as_fd(), PATIENCE)? {
                if let Event::Taken { code, .. } = event {
                    (open, codes) = (open - 1, [codes, vec![code]].concat());
                }
            }
            if self.clock.mono().since(start) >= PATIENCE {
                return Err(Gone::Silent(PATIENCE));
            }
        }
    }

    fn message(&self, rest: &str, payload: impl Into<Vec<u8>>) -> Message {
        Message {
            topic: self.topic(rest),
            payload: payload.into(),
            qos1: true,
            ..Message::default()
        }
    }

    fn numbered(&self, rest: &str, count: usize) -> Vec<Message> {
        (1..=count).map(|n| self.message(rest, format!("{n}"))).collect()
    }

    fn shared(&self, rest: &str) -> Filter {
        filter(&format!("$share/probe/{}", self.topic(rest)))
    }

    /// A member of a pool takes two jobs and dies; what the other and it get afterwards.
    fn dies(&self, how: fn(&str) -> As<'_>, rest: &str) -> std::result::Result<[usize; 3], Gone> {
        let mut dying = self.client(&how("a"))?;
        self.subscribe(&mut dying, self.shared(rest))?;
        let mut sender = self.client(&plain("s"))?;
        self.publish(&mut sender, self.numbered(rest, 2))?;
        let had = self.hear(&mut dying, false)?.len();
        let mut other = self.client(&how("b"))?;
        self.subscribe(&mut other, self.shared(rest))?;
        drop(dying);
        let moved = self.hear(&mut other, true)?.len();
        let mut back = self.client(&how("a"))?;
        let again = self.hear(&mut back, true)?.iter().filter(|m| m.dup).count();
        other.disconnect();
        back.disconnect();
        self.forget("a")?;
        self.forget("b")?;
        Ok([had, moved, again])
    }
}

fn one_away(probe: &Probe) -> Played {
    let mut away = probe.client(&remembered("a"))?;
    probe.subscribe(&mut away, probe.shared("r1"))?;
    away.disconnect();
    let mut here = probe.client(&remembered("b"))?;
    probe.subscribe(&mut here, probe.shared("r1"))?;
    let mut sender = probe.client(&plain("s"))?;
    probe.publish(&mut sender, probe.numbered("r1", 10))?;
    let got = probe.hear(&mut here, true)?.len();
    here.disconnect();
    let mut back = probe.client(&remembered("a"))?;
    let waited = probe.hear(&mut back, true)?.len();
    back.disconnect();
    probe.forget("a")?;
    probe.forget("b")?;
    Ok((format!("{got} of 10 reached who was there, {waited} waited for who was away"), got < 10))
}

fn dies_remembered(probe: &Probe) -> Played {
    let [had, moved, again] = probe.dies(remembered, "r2")?;
    let found = format!("{had} in hand, {moved} went to the other, {again} came again on return");
    Ok((found, moved == 0 && again == had && had > 0))
}

fn dies_forgotten(probe: &Probe) -> Played {
    let [had, moved, again] = probe.dies(plain, "r3")?;
    let found = format!("{had} in hand, {moved} went to the other, {again} came again on return");
    Ok((found, moved + again == 0 && had > 0))
}

fn nobody(probe: &Probe) -> Played {
    let mut sender = probe.client(&plain("s"))?;
    let alone = probe.publish(&mut sender, probe.numbered("r4", 1))?;
    let mut away = probe.client(&remembered("a"))?;
    probe.subscribe(&mut away, probe.shared("r4"))?;
    away.disconnect();
    let with = probe.publish(&mut sender, probe.numbered("r4", 1))?;
    probe.forget("a")?;
    let found = format!("code {alone:02x?} with nobody, {with:02x?} with one remembered");
    Ok((found, alone == [0x10] && with == [0]))
}

fn retained_shared(probe: &Probe) -> Played {
    let mut sender = probe.client(&plain("s"))?;
    let kept = Message { retain: true, ..probe.message("r5", "kept") };
    probe.publish(&mut sender, vec![kept])?;
    let mut reader = probe.client(&plain("a"))?;
    probe.subscribe(&mut reader, probe.shared("r5"))?;
    let got = probe.hear(&mut reader, true)?;
    let clear = Message { retain: true, ..probe.message("r5", "") };
    probe.publish(&mut sender, vec![clear])?;
    let flagged = got.iter().all(|message| message.retain);
    Ok((format!("{} came, flagged as retained: {flagged}", got.len()), flagged))
}

fn many(probe: &Probe) -> Played {
    let mut away = probe.client(&remembered("a"))?;
    probe.subscribe(&mut away, filter(&probe.topic("r6")))?;
    away.disconnect();
    let mut sender = probe.client(&plain("s"))?;
    let codes = probe.publish(&mut sender, probe.numbered("r6", MANY))?;
    let good = codes.iter().filter(|code| **code < 0x80).count();
    let mut back = probe.client(&remembered("a"))?;
    let got = probe.hear(&mut back, true)?.len();
    back.disconnect();
    probe.forget("a")?;
    Ok((format!("{good} of {MANY} were taken, {got} came"), got <= good))
}

fn expires(probe: &Probe) -> Played {
    let mut away = probe.client(&remembered("a"))?;
    probe.subscribe(&mut away, filter(&probe.topic("r8")))?;
    away.disconnect();
    let mut sender = probe.client(&plain("s"))?;
    let lives = |seconds: u32| {
        let mut message = probe.message("r8", format!("{seconds}"));
        message.properties.message_expiry = Some(seconds);
        message
    };
    probe.publish(&mut sender, vec![lives(1), lives(60)])?;
    std::thread::sleep(Duration::from_millis(2200));
    let mut back = probe.client(&remembered("a"))?;
    let got = probe.hear(&mut back, true)?;
    back.disconnect();
    probe.forget("a")?;
    let left = got.first().and_then(|message| message.properties.message_expiry);
    let found = format!("{:?} came, with {} s left", text(&got), left.unwrap_or(0));
    Ok((found, text(&got) == ["60"] && left.is_some_and(|left| (50..60).contains(&left))))
}

fn will(probe: &Probe) -> Played {
    let mut last = probe.message("r9", "gone");
    last.properties.will_delay = Some(2);
    let dies = || As { will: Some(last.clone()), ..remembered("a") };
    let mut reader = probe.client(&plain("b"))?;
    probe.subscribe(&mut reader, filter(&probe.topic("r9")))?;
    drop(probe.client(&dies())?);
    std::thread::sleep(Duration::from_millis(500));
    let back = probe.client(&dies())?;
    let early = probe.hear_for(&mut reader, true, Duration::from_millis(2500))?.len();
    drop(back);
    let late = probe.hear_for(&mut reader, true, Duration::from_millis(3500))?.len();
    probe.forget("a")?;
    Ok((
        format!("{early} when it came back in time, {late} when it did not"),
        early == 0 && late == 1,
    ))
}

fn properties(probe: &Probe) -> Played {
    let mut reader = probe.client(&plain("a"))?;
    probe.subscribe(&mut reader, filter(&probe.topic("r10")))?;
    let mut sender = probe.client(&plain("s"))?;
    let mut message = probe.message("r10", "{}");
    message.properties = Properties {
        content_type: Some("application/json".to_owned()),
        response_topic: Some(probe.topic("answer")),
        correlation: Some(vec![0, 1, 255]),
        payload_is_text: true,
        user: vec![("traceparent".to_owned(), "00-1".to_owned()); 2],
        ..Properties::default()
    };
    probe.publish(&mut sender, vec![message.clone()])?;
    let got = probe.hear(&mut reader, true)?;
    let same = got.first().is_some_and(|got| got.properties == message.properties);
    Ok((if same { "they pass as they were" } else { "they change on the way" }.to_owned(), same))
}

fn too_large(probe: &Probe) -> Played {
    let mut reader = probe.client(&As { largest: Some(1000), ..plain("a") })?;
    probe.subscribe(&mut reader, filter(&probe.topic("r12")))?;
    let mut sender = probe.client(&plain("s"))?;
    let large = probe.message("r12", vec![b'x'; 2000]);
    let codes = probe.publish(&mut sender, vec![large, probe.message("r12", "small")])?;
    let got = probe.hear(&mut reader, true)?;
    let found = format!("code {codes:02x?}; {} of 2 came", got.len());
    Ok((found, codes == [0, 0] && text(&got) == ["small"]))
}

fn one_at_a_time(probe: &Probe) -> Played {
    let mut reader = probe.client(&As { receive: Some(1), ..plain("a") })?;
    probe.subscribe(&mut reader, filter(&probe.topic("r13")))?;
    let mut sender = probe.client(&plain("s"))?;
    probe.publish(&mut sender, probe.numbered("r13", 3))?;
    let first = probe.hear(&mut reader, false)?;
    for message in &first {
        reader.acknowledge(message.id)?;
    }
    let rest = probe.hear(&mut reader, true)?.len();
    Ok((
        format!("{} before the first was taken, {rest} after", first.len()),
        first.len() == 1 && rest == 2,
    ))
}

fn quiet_filters(probe: &Probe) -> Played {
    let mut client = probe.client(&plain("a"))?;
    let kept = Message { retain: true, ..probe.message("r14", "kept") };
    probe.publish(&mut client, vec![kept])?;
    let quiet = Filter { no_retained: true, no_local: true, ..filter(&probe.topic("r14")) };
    probe.subscribe(&mut client, quiet)?;
    probe.publish(&mut client, vec![probe.message("r14", "own")])?;
    let got = probe.hear(&mut client, true)?.len();
    let clear = Message { retain: true, ..probe.message("r14", "") };
    probe.publish(&mut client, vec![clear])?;
    Ok((format!("{got} came"), got == 0))
}

fn again(probe: &Probe) -> Played {
    let mut reader = probe.client(&remembered("a"))?;
    probe.subscribe(&mut reader, filter(&probe.topic("r15")))?;
    let mut sender = probe.client(&plain("s"))?;
    probe.publish(&mut sender, probe.numbered("r15", 1))?;
    let first = probe.hear(&mut reader, false)?.len();
    drop(reader);
    let mut back = probe.client(&remembered("a"))?;
    let got = probe.hear(&mut back, true)?;
    back.disconnect();
    probe.forget("a")?;
    let dup = got.iter().filter(|message| message.dup).count();
    Ok((format!("{first} came, then {} again, {dup} marked so", got.len()), dup == 1))
}

fn twins(probe: &Probe) -> Played {
    let mut first = probe.client(&plain("a"))?;
    let mut second = probe.client(&plain("a"))?;
    let ended = match probe.hear(&mut first, true) {
        Ok(_) => "goes on".to_owned(),
        Err(gone) => format!("is ended: {gone}"),
    };
    let lives = probe.hear(&mut second, true).is_ok();
    Ok((format!("the first {ended}"), ended != "goes on" && lives))
}
