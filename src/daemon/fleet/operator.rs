//! The other side: who orders jobs and watches them, from anywhere that reaches the broker.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mien_base::clock::Clock;
use mien_vault::sign::{Envelope, KeyPair};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::Value;

use crate::contract::{CONTROL_TYPE, Control, Document, JOB_TYPE, JobState, Refusal, of_device};
use crate::errors::{Error, Result};
use crate::mqtt::packet::{Connect, Filter, Message, Properties, Version};
use crate::mqtt::{Broker, Client, Event, Gone, client_config};

/// How long a broker may take to greet or to answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Messages that wait for the broker's acknowledgement at most.
const INFLIGHT: usize = 64;

/// A connection of an operator.
pub struct Operator {
    client: Client,
    wake: OwnedFd,
    clock: Arc<dyn Clock>,
    root: String,
    /// What was published and not yet taken: the topics, for what is refused.
    open: BTreeMap<u16, String>,
    heard: Vec<Message>,
    refused: Vec<(String, u8)>,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("root", &self.root).finish_non_exhaustive()
    }
}

/// What an operator hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// A job's state; whether it is news or was retained.
    State {
        device: String,
        state: Box<JobState>,
        retained: bool,
    },
    /// A retained state was taken away.
    Gone {
        device: String,
        job: String,
    },
    /// Something else that a device told: the rest of the topic, and what.
    Told {
        device: String,
        what: String,
        payload: Vec<u8>,
        retained: bool,
    },
    Other(Box<Message>),
}

fn gone(broker: &Broker) -> impl Fn(Gone) -> Error {
    let url = broker.to_string();
    move |gone| Error::BrokerGone { url: url.clone(), why: gone.to_string() }
}

/// Signs a job document for its device.
#[must_use]
pub fn sign(document: &Document, key: &KeyPair) -> Vec<u8> {
    envelope(JOB_TYPE, document, key)
}

/// Signs a control document.
#[must_use]
pub fn sign_control(control: &Control, key: &KeyPair) -> Vec<u8> {
    envelope(CONTROL_TYPE, control, key)
}

fn envelope(kind: &str, document: &impl serde::Serialize, key: &KeyPair) -> Vec<u8> {
    let payload = serde_json::to_vec(document).expect("plain data with text keys");
    let mut envelope = Envelope::new(kind, payload);
    envelope.sign(key);
    envelope.to_json()
}

impl Operator {
    /// Connects with a session of its own, which ends with the connection.
    ///
    /// # Errors
    /// `Broker`, `BrokerGone`.
    pub fn connect(
        broker: &Broker,
        root: &str,
        name: &str,
        user: Option<(String, String)>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let config = broker.tls.as_ref().map(client_config).transpose()?;
        let connect = Connect {
            version: Version::V5,
            client: name.to_owned(),
            clean: true,
            keep_alive: 30,
            user: user.as_ref().map(|(user, _)| user.clone()),
            password: user.map(|(_, password)| password),
            properties: Properties { receive_maximum: Some(256), ..Properties::default() },
            will: None,
        };
        let (client, _) =
            Client::connect(broker, config.as_ref(), &connect, clock.clone(), PATIENCE)
                .map_err(gone(broker))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::Thread { name: "operator", source: errno.into() })?;
        let (root, open) = (root.to_owned(), BTreeMap::new());
        Ok(Self { client, wake, clock, root, open, heard: Vec::new(), refused: Vec::new() })
    }

    /// Subscribes below the root, and waits for the answer.
    ///
    /// # Errors
    /// `Gone`.
    pub fn subscribe(&mut self, rest: &[&str]) -> std::result::Result<(), Gone> {
        let filters = rest
            .iter()
            .map(|rest| Filter {
                filter: format!("{}/{rest}", self.root),
                no_retained: false,
                // So that what comes with the flag was there before, and what comes without is news.
                as_published: false,
                no_local: true,
            })
            .collect();
        let wanted = self.client.subscribe(filters)?;
        let start = self.clock.mono();
        loop {
            let left = PATIENCE.saturating_sub(self.clock.mono().since(start));
            if left.is_zero() {
                return Err(Gone::Silent(PATIENCE));
            }
            for event in self.client.wait(self.wake.as_fd(), left)? {
                match event {
                    Event::Subscribed { id, codes } if id == wanted => {
                        let bad = codes.iter().find(|code| **code >= 0x80);
                        return bad.map_or(Ok(()), |code| {
                            let reason = Some("it does not let us listen".to_owned());
                            Err(Gone::Refused { code: *code, reason })
                        });
                    }
                    other => self.take(other)?,
                }
            }
        }
    }

    /// Publishes what a device is to read. Waits while too much is on its way.
    ///
    /// # Errors
    /// `Gone`.
    pub fn publish(
        &mut self,
        rest: &str,
        payload: Vec<u8>,
        properties: Properties,
    ) -> std::result::Result<(), Gone> {
        self.send(Message {
            topic: format!("{}/{rest}", self.root),
            payload,
            qos1: true,
            properties,
            ..Message::default()
        })
    }

    /// Publishes a whole message.
    ///
    /// # Errors
    /// `Gone`.
    pub fn send(&mut self, message: Message) -> std::result::Result<(), Gone> {
        while self.open.len() >= INFLIGHT {
            self.listen(PATIENCE)?;
        }
        let topic = message.topic.clone();
        if let Some(id) = self.client.publish(message)? {
            self.open.insert(id, topic);
        }
        Ok(())
    }

    /// Sends a signed job to its audience.
    ///
    /// # Errors
    /// `Gone`.
    pub fn submit(&mut self, document: &Document, key: &KeyPair) -> std::result::Result<(), Gone> {
        self.order(document, key, None)
    }

    /// The same; each device that gets it answers below its own topics under `reply/NAME`.
    ///
    /// # Errors
    /// `Gone`.
    pub fn order(
        &mut self,
        document: &Document,
        key: &KeyPair,
        reply: Option<&str>,
    ) -> std::result::Result<(), Gone> {
        // A device may write below its own topics alone, and only one device is asked by name.
        let device = reply.filter(|_| !document.audience.contains('/'));
        let response_topic =
            device.map(|name| format!("{}/{}/reply/{name}", self.root, document.audience));
        let rest = match document.audience.split_once('/') {
            Some(("pool", pool)) => format!("pool/{pool}/offer"),
            Some((group, name)) => format!("{group}/{name}/job/req"),
            None => format!("{}/job/req", document.audience),
        };
        let now = self.clock.wall().0.saturating_mul(1000);
        let life = document.expires_at.saturating_sub(now).div_ceil(1000);
        let properties = Properties {
            message_expiry: Some(u32::try_from(life).unwrap_or(u32::MAX).max(1)),
            content_type: Some("application/json".to_owned()),
            payload_is_text: true,
            user: vec![("schema".to_owned(), crate::contract::JOB.to_owned())],
            correlation: response_topic.as_ref().map(|_| document.id.clone().into_bytes()),
            response_topic,
            ..Properties::default()
        };
        self.publish(&rest, sign(document, key), properties)
    }

    /// Sends a signed control document to a device.
    ///
    /// # Errors
    /// `Gone`.
    pub fn control(
        &mut self,
        device: &str,
        control: &Control,
        key: &KeyPair,
    ) -> std::result::Result<(), Gone> {
        let properties = Properties {
            message_expiry: Some(60),
            content_type: Some("application/json".to_owned()),
            payload_is_text: true,
            ..Properties::default()
        };
        let rest = format!("{device}/job/{}/ctl", control.job);
        self.publish(&rest, sign_control(control, key), properties)
    }

    fn take(&mut self, event: Event) -> std::result::Result<(), Gone> {
        match event {
            Event::Message(message) => {
                self.client.acknowledge(message.id)?;
                self.heard.push(*message);
            }
            Event::Taken { id, code } => {
                let topic = self.open.remove(&id);
                if code >= 0x80 {
                    self.refused.push((topic.unwrap_or_default(), code));
                }
            }
            Event::Subscribed { .. } => {}
        }
        Ok(())
    }

    fn listen(&mut self, most: Duration) -> std::result::Result<(), Gone> {
        for event in self.client.wait(self.wake.as_fd(), most)? {
            self.take(event)?;
        }
        Ok(())
    }

    /// What was heard; waits at most `most` for something.
    ///
    /// # Errors
    /// `Gone`.
    pub fn hear(&mut self, most: Duration) -> std::result::Result<Vec<Heard>, Gone> {
        if self.heard.is_empty() {
            self.listen(most)?;
        }
        let heard = std::mem::take(&mut self.heard);
        Ok(heard.into_iter().map(|message| self.told(message)).collect())
    }

    fn told(&self, message: Message) -> Heard {
        let Some((device, rest)) = of_device(&self.root, &message.topic) else {
            return Heard::Other(Box::new(message));
        };
        let device = device.to_owned();
        let job = rest.strip_prefix("job/").and_then(|rest| rest.strip_suffix("/state"));
        if let Some(job) = job {
            if message.payload.is_empty() {
                return Heard::Gone { device, job: job.to_owned() };
            }
            if let Ok(state) = serde_json::from_slice::<JobState>(&message.payload) {
                return Heard::State { device, state: Box::new(state), retained: message.retain };
            }
        }
        let (what, retained) = (rest.to_owned(), message.retain);
        Heard::Told { device, what, payload: message.payload, retained }
    }

    /// Topics that the broker refused to take something for, with its codes.
    pub fn refused(&mut self) -> Vec<(String, u8)> {
        std::mem::take(&mut self.refused)
    }

    /// Messages that the broker has not taken yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.open.len()
    }

    /// Waits until everything was taken, and ends the connection.
    ///
    /// # Errors
    /// `Gone`.
    pub fn finish(mut self) -> std::result::Result<(), Gone> {
        let start = self.clock.mono();
        while !self.open.is_empty() && self.clock.mono().since(start) < PATIENCE {
            self.listen(Duration::from_millis(200))?;
        }
        self.client.disconnect();
        Ok(())
    }
}

/// Reads an answer of a response topic: what became of a document.
///
/// # Errors
/// The refusal.
pub fn answer(payload: &[u8]) -> std::result::Result<Option<JobState>, Refusal> {
    let Ok(mut value) = serde_json::from_slice::<Value>(payload) else { return Ok(None) };
    if let Ok(refusal) = serde_json::from_value::<Refusal>(value["refused"].take()) {
        return Err(refusal);
    }
    Ok(serde_json::from_value(value["state"].take()).ok())
}
