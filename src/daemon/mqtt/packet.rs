//! MQTT packets, version 5 and 3.1.1, both ways: what a client and a broker say to each other.
//!
//! Only what the contract uses: QoS 0 and 1. Everything that is read is bounded before it is kept.

use super::bytes::{Reader, put_number, put_text};

/// Largest packet that is taken, in bytes.
pub const LARGEST: usize = 256 << 10;
/// Most properties that are looked at in one packet.
const PROPERTIES: usize = 64;
/// Most filters in one subscription.
const FILTERS: usize = 64;

/// What the other side sent that can't be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    #[error("A packet larger than {LARGEST} bytes")]
    Large,
    #[error("A malformed packet: {0}")]
    Malformed(&'static str),
}

/// Which version is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V4,
    V5,
}

/// Properties that the contract uses; others are passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    pub session_expiry: Option<u32>,
    pub receive_maximum: Option<u16>,
    pub maximum_packet: Option<u32>,
    pub keep_alive: Option<u16>,
    pub client_id: Option<String>,
    pub will_delay: Option<u32>,
    pub message_expiry: Option<u32>,
    pub content_type: Option<String>,
    pub response_topic: Option<String>,
    pub correlation: Option<Vec<u8>>,
    pub payload_is_text: bool,
    pub reason: Option<String>,
    pub user: Vec<(String, String)>,
}

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub topic: String,
    pub payload: Vec<u8>,
    /// Sent again, perhaps.
    pub dup: bool,
    /// Acknowledged by the other side.
    pub qos1: bool,
    pub retain: bool,
    /// 0 for QoS 0.
    pub id: u16,
    pub properties: Properties,
}

/// What a client begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    pub version: Version,
    pub client: String,
    pub clean: bool,
    pub keep_alive: u16,
    pub user: Option<String>,
    pub password: Option<String>,
    pub properties: Properties,
    pub will: Option<Message>,
}

/// One filter of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub filter: String,
    /// Retained messages are not sent for it.
    pub no_retained: bool,
    /// Messages keep the retain flag that they were published with.
    pub as_published: bool,
    pub no_local: bool,
}

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    Connect(Box<Connect>),
    Connack { session: bool, code: u8, properties: Properties },
    Publish(Message),
    Puback { id: u16, code: u8 },
    Subscribe { id: u16, filters: Vec<Filter> },
    Suback { id: u16, codes: Vec<u8> },
    Ping,
    Pong,
    Disconnect { code: u8, properties: Properties },
}

impl Properties {
    fn read(from: &mut Reader<'_>) -> Result<Self, Bad> {
        let length = from.number()? as usize;
        let mut inner = Reader::new(from.take(length)?);
        let mut all = Self::default();
        let mut count = 0;
        while !inner.is_empty() {
            count += 1;
            if count > PROPERTIES {
                return Err(Bad::Malformed("too many properties"));
            }
            match inner.byte()? {
                0x01 => all.payload_is_text = inner.byte()? == 1,
                0x02 => all.message_expiry = Some(inner.long()?),
                0x03 => all.content_type = Some(inner.text()?),
                0x08 => all.response_topic = Some(inner.text()?),
                0x09 => all.correlation = Some(inner.binary()?.to_vec()),
                0x0b => {
                    inner.number()?;
                }
                0x11 => all.session_expiry = Some(inner.long()?),
                0x12 => all.client_id = Some(inner.text()?),
                0x13 => all.keep_alive = Some(inner.short()?),
                0x15 | 0x1a | 0x1c => {
                    inner.text()?;
                }
                0x16 => {
                    inner.binary()?;
                }
                0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2a => {
                    inner.byte()?;
                }
                0x18 => all.will_delay = Some(inner.long()?),
                0x1f => all.reason = Some(inner.text()?),
                0x21 => all.receive_maximum = Some(inner.short()?),
                0x22 => {
                    inner.short()?;
                }
                0x23 => return Err(Bad::Malformed("a topic alias, which was not offered")),
                0x26 => all.user.push((inner.text()?, inner.text()?)),
                0x27 => all.maximum_packet = Some(inner.long()?),
                _ => return Err(Bad::Malformed("an unknown property")),
            }
        }
        Ok(all)
    }

    fn write(&self, to: &mut Vec<u8>) {
        let mut all = Vec::new();
        let long = |all: &mut Vec<u8>, id: u8, value: Option<u32>| {
            if let Some(value) = value {
                all.push(id);
                all.extend(value.to_be_bytes());
            }
        };
        let short = |all: &mut Vec<u8>, id: u8, value: Option<u16>| {
            if let Some(value) = value {
                all.push(id);
                all.extend(value.to_be_bytes());
            }
        };
        let text = |all: &mut Vec<u8>, id: u8, value: Option<&[u8]>| {
            if let Some(value) = value {
                all.push(id);
                put_text(all, value);
            }
        };
        if self.payload_is_text {
            all.extend([0x01, 1]);
        }
        long(&mut all, 0x02, self.message_expiry);
        text(&mut all, 0x03, self.content_type.as_deref().map(str::as_bytes));
        text(&mut all, 0x08, self.response_topic.as_deref().map(str::as_bytes));
        text(&mut all, 0x09, self.correlation.as_deref());
        long(&mut all, 0x11, self.session_expiry);
        text(&mut all, 0x12, self.client_id.as_deref().map(str::as_bytes));
        short(&mut all, 0x13, self.keep_alive);
        long(&mut all, 0x18, self.will_delay);
        text(&mut all, 0x1f, self.reason.as_deref().map(str::as_bytes));
        short(&mut all, 0x21, self.receive_maximum);
        for (key, value) in &self.user {
            all.push(0x26);
            put_text(&mut all, key.as_bytes());
            put_text(&mut all, value.as_bytes());
        }
        long(&mut all, 0x27, self.maximum_packet);
        put_number(to, all.len() as u32);
        to.extend(all);
    }
}

/// Takes one packet off the front of what came; `None` when it is not all there yet.
///
/// # Errors
/// `Bad`: then nothing that follows can be read.
pub fn decode(bytes: &[u8], version: Version) -> Result<Option<(Packet, usize)>, Bad> {
    let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
    let mut length = 0_usize;
    let mut used = None;
    for (n, byte) in rest.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            used = Some(n + 1);
            break;
        }
    }
    let Some(used) = used else {
        return if rest.len() >= 4 { Err(Bad::Malformed("its length")) } else { Ok(None) };
    };
    if length > LARGEST {
        return Err(Bad::Large);
    }
    let Some(body) = rest.get(used..used + length) else { return Ok(None) };
    Ok(Some((read(first, body, version)?, 1 + used + length)))
}

fn read(first: u8, body: &[u8], version: Version) -> Result<Packet, Bad> {
    let five = version == Version::V5;
    let mut from = Reader::new(body);
    let properties = |from: &mut Reader<'_>| {
        if five && !from.is_empty() { Properties::read(from) } else { Ok(Properties::default()) }
    };
    let packet = match (first >> 4, first & 0x0f) {
        (1, 0) => Packet::Connect(Box::new(read_connect(&mut from)?)),
        (2, 0) => {
            let (flags, code) = (from.byte()?, from.byte()?);
            Packet::Connack { session: flags & 1 == 1, code, properties: properties(&mut from)? }
        }
        (3, flags) => {
            let qos = flags >> 1 & 3;
            if qos > 1 {
                return Err(Bad::Malformed("QoS 2, which is not used here"));
            }
            let topic = from.text()?;
            if topic.contains(['+', '#', '\0']) {
                return Err(Bad::Malformed("a topic with a wildcard"));
            }
            let id = if qos == 1 { from.short()? } else { 0 };
            if qos == 1 && id == 0 {
                return Err(Bad::Malformed("packet id 0"));
            }
            let properties =
                if five { Properties::read(&mut from)? } else { Properties::default() };
            Packet::Publish(Message {
                topic,
                payload: from.rest().to_vec(),
                dup: flags & 8 != 0,
                qos1: qos == 1,
                retain: flags & 1 != 0,
                id,
                properties,
            })
        }
        (4, 0) => {
            let id = from.short()?;
            let code = if from.is_empty() { 0 } else { from.byte()? };
            properties(&mut from)?;
            Packet::Puback { id, code }
        }
        (8, 2) => {
            let id = from.short()?;
            properties(&mut from)?;
            let mut filters = Vec::new();
            while !from.is_empty() && filters.len() < FILTERS {
                let filter = from.text()?;
                let options = from.byte()?;
                filters.push(Filter {
                    filter,
                    no_retained: options >> 4 & 3 == 2,
                    as_published: options & 8 != 0,
                    no_local: options & 4 != 0,
                });
            }
            Packet::Subscribe { id, filters }
        }
        (9, 0) => {
            let id = from.short()?;
            properties(&mut from)?;
            Packet::Suback { id, codes: from.rest().to_vec() }
        }
        (12, 0) => Packet::Ping,
        (13, 0) => Packet::Pong,
        (14, 0) => {
            let code = if from.is_empty() { 0 } else { from.byte()? };
            Packet::Disconnect { code, properties: properties(&mut from)? }
        }
        _ => return Err(Bad::Malformed("its kind")),
    };
    Ok(packet)
}

fn read_connect(from: &mut Reader<'_>) -> Result<Connect, Bad> {
    if from.text()? != "MQTT" {
        return Err(Bad::Malformed("the protocol's name"));
    }
    let version = match from.byte()? {
        4 => Version::V4,
        5 => Version::V5,
        _ => return Err(Bad::Malformed("the protocol's version")),
    };
    let five = version == Version::V5;
    let flags = from.byte()?;
    let keep_alive = from.short()?;
    let properties = if five { Properties::read(from)? } else { Properties::default() };
    let client = from.text()?;
    let will = if flags & 4 != 0 {
        let properties = if five { Properties::read(from)? } else { Properties::default() };
        let (topic, payload) = (from.text()?, from.binary()?.to_vec());
        let (retain, qos1) = (flags & 0x20 != 0, flags & 0x18 != 0);
        Some(Message { topic, payload, retain, qos1, properties, ..Message::default() })
    } else {
        None
    };
    let user = if flags & 0x80 != 0 { Some(from.text()?) } else { None };
    let password = if flags & 0x40 != 0 { Some(from.text()?) } else { None };
    let clean = flags & 2 != 0;
    Ok(Connect { version, client, clean, keep_alive, user, password, properties, will })
}

impl Packet {
    /// Writes a packet at the end of what is to be sent.
    pub fn encode(&self, to: &mut Vec<u8>, version: Version) {
        let five = version == Version::V5;
        let mut body = Vec::new();
        let properties = |body: &mut Vec<u8>, all: &Properties| {
            if five {
                all.write(body);
            }
        };
        let none = Properties::default();
        let first = match self {
            Self::Connect(connect) => {
                write_connect(&mut body, connect);
                0x10
            }
            Self::Connack { session, code, properties: all } => {
                body.extend([u8::from(*session), *code]);
                properties(&mut body, all);
                0x20
            }
            Self::Publish(message) => {
                put_text(&mut body, message.topic.as_bytes());
                if message.qos1 {
                    body.extend(message.id.to_be_bytes());
                }
                properties(&mut body, &message.properties);
                body.extend(&message.payload);
                0x30 | u8::from(message.dup) << 3
                    | u8::from(message.qos1) << 1
                    | u8::from(message.retain)
            }
            Self::Puback { id, code } => {
                body.extend(id.to_be_bytes());
                if five && *code != 0 {
                    body.push(*code);
                }
                0x40
            }
            Self::Subscribe { id, filters } => {
                body.extend(id.to_be_bytes());
                properties(&mut body, &none);
                for filter in filters {
                    put_text(&mut body, filter.filter.as_bytes());
                    let options = u8::from(filter.no_retained) << 5
                        | u8::from(filter.as_published) << 3
                        | u8::from(filter.no_local) << 2;
                    body.push(if five { options | 1 } else { 1 });
                }
                0x82
            }
            Self::Suback { id, codes } => {
                body.extend(id.to_be_bytes());
                properties(&mut body, &none);
                body.extend(codes);
                0x90
            }
            Self::Ping => 0xc0,
            Self::Pong => 0xd0,
            Self::Disconnect { code, properties: all } => {
                if five && (*code != 0 || *all != none) {
                    body.push(*code);
                    properties(&mut body, all);
                }
                0xe0
            }
        };
        to.push(first);
        put_number(to, body.len() as u32);
        to.extend(body);
    }
}

fn write_connect(body: &mut Vec<u8>, connect: &Connect) {
    let five = connect.version == Version::V5;
    put_text(body, b"MQTT");
    body.push(if five { 5 } else { 4 });
    let will = connect.will.as_ref();
    let mut flags = u8::from(connect.clean) << 1;
    if let Some(will) = will {
        flags |= 4 | u8::from(will.qos1) << 3 | u8::from(will.retain) << 5;
    }
    flags |= u8::from(connect.user.is_some()) << 7 | u8::from(connect.password.is_some()) << 6;
    body.push(flags);
    body.extend(connect.keep_alive.to_be_bytes());
    if five {
        connect.properties.write(body);
    }
    put_text(body, connect.client.as_bytes());
    if let Some(will) = will {
        if five {
            will.properties.write(body);
        }
        put_text(body, will.topic.as_bytes());
        put_text(body, &will.payload);
    }
    for text in [&connect.user, &connect.password].into_iter().flatten() {
        put_text(body, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Packet> {
        let properties = Properties {
            session_expiry: Some(7),
            receive_maximum: Some(8),
            maximum_packet: Some(LARGEST as u32),
            user: vec![("schema".to_owned(), "mien.job/1".to_owned())],
            ..Properties::default()
        };
        let message = Message {
            topic: "a/b".to_owned(),
            payload: b"payload".to_vec(),
            qos1: true,
            retain: true,
            dup: true,
            id: 77,
            properties: Properties {
                message_expiry: Some(60),
                content_type: Some("application/json".to_owned()),
                response_topic: Some("r".to_owned()),
                correlation: Some(vec![0, 255]),
                payload_is_text: true,
                ..Properties::default()
            },
        };
        let will = Message {
            dup: false,
            id: 0,
            properties: Properties { will_delay: Some(15), ..Properties::default() },
            ..message.clone()
        };
        let connect = Connect {
            version: Version::V5,
            client: "dev-1".to_owned(),
            clean: true,
            keep_alive: 30,
            user: Some("u".to_owned()),
            password: Some("p".to_owned()),
            properties: properties.clone(),
            will: Some(will),
        };
        let filter = Filter {
            filter: "a/#".to_owned(),
            no_retained: true,
            as_published: true,
            no_local: true,
        };
        vec![
            Packet::Connect(Box::new(connect)),
            Packet::Connack { session: true, code: 0, properties },
            Packet::Publish(message),
            Packet::Puback { id: 1, code: 0x87 },
            Packet::Puback { id: 1, code: 0 },
            Packet::Subscribe { id: 2, filters: vec![filter] },
            Packet::Suback { id: 2, codes: vec![1, 0x87] },
            Packet::Ping,
            Packet::Pong,
            Packet::Disconnect { code: 0x8e, properties: Properties::default() },
        ]
    }

    #[test]
    fn packets_are_read_as_they_were_written_and_only_when_whole() {
        for packet in all() {
            let mut bytes = Vec::new();
            packet.encode(&mut bytes, Version::V5);
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut], Version::V5), Ok(None), "{packet:?} cut at {cut}");
            }
            let length = bytes.len();
            bytes.push(0xff);
            assert_eq!(decode(&bytes, Version::V5), Ok(Some((packet, length))));
        }
    }

    #[test]
    fn bytes_are_those_of_the_specification() {
        let connect = Connect {
            version: Version::V4,
            client: "a".to_owned(),
            clean: true,
            keep_alive: 10,
            user: None,
            password: None,
            properties: Properties::default(),
            will: None,
        };
        let mut bytes = Vec::new();
        Packet::Connect(Box::new(connect)).encode(&mut bytes, Version::V4);
        assert_eq!(bytes, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x0a\x00\x01a");
        bytes.clear();
        let message = Message { topic: "t".into(), payload: b"x".to_vec(), ..Message::default() };
        Packet::Publish(message).encode(&mut bytes, Version::V5);
        assert_eq!(bytes, b"\x30\x05\x00\x01t\x00x");
    }

    #[test]
    fn what_is_too_large_or_no_packet_is_refused_before_it_is_kept() {
        assert_eq!(decode(b"\x30\xff\xff\xff\x7f", Version::V5), Err(Bad::Large));
        for bad in [
            &b"\x30\xff\xff\xff\xff"[..],
            b"\x00\x00",
            b"\x36\x03\x00\x01t",
            b"\x32\x05\x00\x01t\x00\x00",
        ] {
            assert!(matches!(decode(bad, Version::V5), Err(Bad::Malformed(_))), "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), n in 0..10_usize,
            at in 0..500_usize, byte in proptest::num::u8::ANY
        ) {
            let _ = decode(&bytes, Version::V5);
            let _ = decode(&bytes, Version::V4);
            let mut packet = Vec::new();
            all()[n].encode(&mut packet, Version::V5);
            let at = at % packet.len();
            packet[at] = byte;
            let _ = decode(&packet, Version::V5);
        }
    }
}
