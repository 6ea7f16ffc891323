//! What is written beside the pixels: the XMP packet and the `AIGC` record (GB 45438).

use std::collections::BTreeMap;

use mien_base::clock::Wall;
use mien_base::limits;

use super::invisible::{Altered, Payload};

const SOURCE_TYPE: &str = "http://cv.iptc.org/newscodes/digitalsourcetype/";
/// Fields of the record, in the order in which they are written.
const FIELDS: [&str; 7] = [
    "Label",
    "ContentProducer",
    "ProduceID",
    "ReservedCode1",
    "ContentPropagator",
    "PropagateID",
    "ReservedCode2",
];

/// IPTC's name for what was done; `None` when nothing was altered.
#[must_use]
pub const fn source_type(altered: Altered) -> Option<&'static str> {
    match altered {
        Altered::Nothing => None,
        Altered::Masked => Some("algorithmicallyEnhanced"),
        Altered::Generated => Some("compositeWithTrainedAlgorithmicMedia"),
    }
}

/// The `AIGC` record of the result. A record that the input carried stays: its producer remains
/// the producer, and we become the propagator. Only generated content gets a record of its own.
#[must_use]
pub fn record(payload: Payload, producer: &str, before: Option<&str>) -> Option<String> {
    let known = before.and_then(parse);
    if let (Some(text), None) = (before, &known)
        && payload.altered != Altered::Generated
    {
        return Some(text.to_owned());
    }
    match (known, payload.altered) {
        (None, Altered::Generated) => {
            let (ours, id) = (plain(producer), payload.hex());
            Some(write(
                [("Label", "1"), ("ContentProducer", &ours), ("ProduceID", &id)],
                (&ours, &id),
            ))
        }
        (None, _) => None,
        (Some(_), Altered::Nothing) => before.map(str::to_owned),
        (Some(fields), _) => {
            let field = |name: &str| fields.get(name).map_or("", String::as_str);
            // What is generated is so for certain, whatever was suspected before.
            let label = if payload.altered == Altered::Generated { "1" } else { field("Label") };
            let first = [
                ("Label", label),
                ("ContentProducer", field("ContentProducer")),
                ("ProduceID", field("ProduceID")),
                ("ReservedCode1", field("ReservedCode1")),
            ];
            let text = write(first, (&plain(producer), &payload.hex()));
            (text.len() <= limits::AIGC).then_some(text).or_else(|| before.map(str::to_owned))
        }
    }
}

fn write<'a, const N: usize>(first: [(&str, &'a str); N], last: (&'a str, &'a str)) -> String {
    let mut values: BTreeMap<&str, &str> = first.into_iter().collect();
    values.insert("ContentPropagator", last.0);
    values.insert("PropagateID", last.1);
    let field = |name: &&str| format!("\"{name}\":\"{}\"", values.get(name).unwrap_or(&""));
    format!("{{{}}}", FIELDS.iter().map(field).collect::<Vec<_>>().join(","))
}

/// Values of a record: text without space, quote or backslash. `None` when it is none.
#[must_use]
pub fn parse(record: &str) -> Option<BTreeMap<String, String>> {
    if record.len() > limits::AIGC {
        return None;
    }
    let fields: BTreeMap<String, String> = serde_json::from_str(record).ok()?;
    let fine = fields.get("Label").is_some_and(|l| ["1", "2", "3"].contains(&l.as_str()))
        && fields.values().all(|value| value.bytes().all(is_plain));
    fine.then_some(fields)
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'"' && byte != b'\\'
}

/// A name as a record may hold it.
fn plain(name: &str) -> String {
    name.bytes().filter(|b| is_plain(*b)).take(limits::NAME).map(char::from).collect()
}

/// The XMP packet of the result; `None` when there is nothing to say.
#[must_use]
pub fn xmp(altered: Altered, record: Option<&str>, made: Wall) -> Option<String> {
    let kind = source_type(altered)?;
    let record = record.map_or(String::new(), |text| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
        format!("\n    TC260:AIGC=\"{text}\"")
    });
    Some(format!(
        "<?xpacket begin=\"\u{feff}\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>\n\
         <x:xmpmeta xmlns:x=\"adobe:ns:meta/\">\n \
         <rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\n  \
         <rdf:Description rdf:about=\"\"\n    \
         xmlns:xmp=\"http://ns.adobe.com/xap/1.0/\"\n    \
         xmlns:Iptc4xmpExt=\"http://iptc.org/std/Iptc4xmpExt/2008-02-29/\"\n    \
         xmlns:TC260=\"http://www.tc260.org.cn/ns/AIGC/1.0/\"\n    \
         xmp:CreatorTool=\"mien {}\"\n    \
         xmp:MetadataDate=\"{made}\"\n    \
         Iptc4xmpExt:DigitalSourceType=\"{SOURCE_TYPE}{kind}\"{record}/>\n \
         </rdf:RDF>\n\
         </x:xmpmeta>\n\
         <?xpacket end=\"w\"?>",
        env!("CARGO_PKG_VERSION")
    ))
}

/// The last word of the DigitalSourceType that a packet states, as attribute or as element.
#[must_use]
pub fn stated_source_type(xmp: &str) -> Option<&str> {
    let after = xmp.split("DigitalSourceType").nth(1)?.trim_start();
    let value = match after.strip_prefix('=') {
        Some(rest) => {
            let rest = rest.trim_start();
            let quote = rest.chars().next().filter(|c| ['"', '\''].contains(c))?;
            rest[1..].split(quote).next()?
        }
        None => after.strip_prefix('>')?.split('<').next()?,
    };
    let word = value.trim().trim_end_matches('/').rsplit('/').next()?;
    let plain = |c: char| c.is_ascii_alphanumeric();
    (!word.is_empty() && word.len() <= limits::NAME && word.chars().all(plain)).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_base::id::DeviceId;

    fn payload(altered: Altered) -> Payload {
        Payload { altered, device: DeviceId::new(5).unwrap(), counter: 7 }
    }

    #[test]
    fn record_of_generated_content_is_the_published_shape() {
        assert_eq!(
            record(payload(Altered::Generated), "mi\"e n\\é", None).unwrap(),
            "{\"Label\":\"1\",\"ContentProducer\":\"mien\",\"ProduceID\":\"7000000500000007\",\
             \"ReservedCode1\":\"\",\"ContentPropagator\":\"mien\",\
             \"PropagateID\":\"7000000500000007\",\"ReservedCode2\":\"\"}"
        );
        assert_eq!(record(payload(Altered::Masked), "mien", None), None);
        assert_eq!(record(payload(Altered::Nothing), "mien", None), None);
    }

    #[test]
    fn foreign_record_keeps_its_producer_and_gets_us_as_propagator() {
        let foreign = r#"{"Label":"2","ContentProducer":"other","ProduceID":"X1","ReservedCode1":"sig","ContentPropagator":"other","PropagateID":"X1","ReservedCode2":""}"#;
        for (altered, label) in [(Altered::Masked, "2"), (Altered::Generated, "1")] {
            let fields = parse(&record(payload(altered), "mien", Some(foreign)).unwrap()).unwrap();
            for (name, value) in [
                ("Label", label),
                ("ContentProducer", "other"),
                ("ProduceID", "X1"),
                ("ReservedCode1", "sig"),
                ("ContentPropagator", "mien"),
                ("PropagateID", &payload(altered).hex()),
            ] {
                assert_eq!(fields[name], value, "{name}");
            }
        }
        assert_eq!(record(payload(Altered::Nothing), "mien", Some(foreign)).unwrap(), foreign);
    }

    #[test]
    fn record_that_is_not_understood_is_kept_unless_ours_must_stand_there() {
        for odd in ["{\"Label\":1}", "{}", "nonsense", "{\"Label\":\"1\",\"X\":\"a b\"}"] {
            assert_eq!(parse(odd), None);
            assert_eq!(record(payload(Altered::Masked), "mien", Some(odd)).unwrap(), odd);
            let ours = record(payload(Altered::Generated), "mien", Some(odd)).unwrap();
            assert_eq!(parse(&ours).unwrap()["ContentProducer"], "mien");
        }
        assert_eq!(parse(&format!("{{\"Label\":\"{}\"}}", "1".repeat(9_000))), None);
    }

    #[test]
    fn packet_states_what_was_done_and_is_well_formed() {
        let record = record(payload(Altered::Generated), "a<&b", None).unwrap();
        let made = Wall(1_796_063_974);
        let packet = xmp(Altered::Generated, Some(&record), made).unwrap();
        assert_eq!(stated_source_type(&packet), Some("compositeWithTrainedAlgorithmicMedia"));
        assert!(packet.contains("xmp:MetadataDate=\"2026-11-30T18:39:34Z\""));
        assert!(packet.contains("TC260:AIGC=\"{&quot;Label&quot;:&quot;1&quot;,"));
        assert!(packet.contains("a&lt;&amp;b"));
        assert_eq!(packet.matches('"').count() % 2, 0);
        assert_eq!(packet, xmp(Altered::Generated, Some(&record), made).unwrap());
        let masked = xmp(Altered::Masked, None, made).unwrap();
        assert_eq!(stated_source_type(&masked), Some("algorithmicallyEnhanced"));
        assert!(!masked.contains("AIGC="));
        assert_eq!(xmp(Altered::Nothing, None, made), None);
    }

    #[test]
    fn source_type_is_read_as_others_write_it() {
        let element = "<Iptc4xmpExt:DigitalSourceType>\nhttp://x/digitalsourcetype/trainedAlgorithmicMedia\n</Iptc4xmpExt:DigitalSourceType>";
        assert_eq!(stated_source_type(element), Some("trainedAlgorithmicMedia"));
        let single = "a:DigitalSourceType = 'http://x/digitalCapture/'";
        assert_eq!(stated_source_type(single), Some("digitalCapture"));
        for bad in [
            "",
            "DigitalSourceType",
            "DigitalSourceType=",
            "DigitalSourceType=\"",
            "DigitalSourceType=\"a b\"",
            "DigitalSourceType>é",
        ] {
            assert_eq!(stated_source_type(bad), None, "{bad}");
        }
    }
}
