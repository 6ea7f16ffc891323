//! The topics, both ways: what a device publishes, and what a message that arrives is about.

/// First words of every topic, and the contract's major version.
pub const ROOT: &str = "mien/v1";
/// Longest name of a device, a group, a pool.
const LONGEST: usize = 64;

/// A name that may stand in a topic.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The topics of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics {
    root: String,
    device: String,
}

/// What a message that arrived is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A job for this device.
    Job,
    /// A job for a group that it belongs to.
    GroupJob(String),
    /// A job offered to one member of a pool.
    Offer(String),
    /// What is to happen to a job.
    Control(String),
    /// The whole desired state.
    Desired,
    /// A query.
    Get,
    /// A bare command of Home Assistant.
    Set(Vec<String>),
    /// Home Assistant itself came or went.
    Home,
}

impl Topics {
    /// Of a device; `None` when its name can't stand in a topic.
    #[must_use]
    pub fn new(root: &str, device: &str) -> Option<Self> {
        let levels = root.split('/').all(is_name);
        (levels && root.len() <= LONGEST && is_name(device))
            .then(|| Self { root: root.to_owned(), device: device.to_owned() })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The first words.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }

    /// A topic of the device.
    #[must_use]
    pub fn own(&self, rest: &str) -> String {
        format!("{}/{}/{rest}", self.root, self.device)
    }

    /// Where a job's state is told.
    #[must_use]
    pub fn state(&self, job: &str) -> String {
        self.own(&format!("job/{job}/state"))
    }

    /// What to subscribe to on the main connection.
    #[must_use]
    pub fn filters(&self, groups: &[String], commands: bool, home: bool) -> Vec<String> {
        let mut all = vec![
            self.own("job/req"),
            self.own("job/+/ctl"),
            self.own("twin/desired"),
            self.own("get"),
        ];
        all.extend(groups.iter().map(|group| format!("{}/group/{group}/job/req", self.root)));
        if commands {
            all.push(self.own("set/#"));
        }
        if home {
            all.push("homeassistant/status".to_owned());
        }
        all
    }

    /// What to subscribe to on the connection of the pools.
    #[must_use]
    pub fn pool_filter(&self, pool: &str) -> String {
        format!("$share/{pool}/{}/pool/{pool}/offer", self.root)
    }

    /// What a topic is about; `None` for what is not for this device.
    #[must_use]
    pub fn parse(&self, topic: &str) -> Option<Incoming> {
        if topic == "homeassistant/status" {
            return Some(Incoming::Home);
        }
        let rest = topic.strip_prefix(&self.root)?.strip_prefix('/')?;
        let levels: Vec<&str> = rest.split('/').collect();
        let name = |text: &str| is_name(text).then(|| text.to_owned());
        match *levels.as_slice() {
            ["group", group, "job", "req"] => Some(Incoming::GroupJob(name(group)?)),
            ["pool", pool, "offer"] => Some(Incoming::Offer(name(pool)?)),
            [device, ..] if device != self.device => None,
            [_, "job", "req"] => Some(Incoming::Job),
            [_, "job", id, "ctl"] => Some(Incoming::Control(name(id)?)),
            [_, "twin", "desired"] => Some(Incoming::Desired),
            [_, "get"] => Some(Incoming::Get),
            [_, "set", ref what @ ..] if (2..=3).contains(&what.len()) => {
                what.iter().map(|level| name(level)).collect::<Option<_>>().map(Incoming::Set)
            }
            _ => None,
        }
    }
}

/// What an operator sees: the device of a topic, and the rest of it.
#[must_use]
pub fn of_device<'a>(root: &str, topic: &'a str) -> Option<(&'a str, &'a str)> {
    let (device, rest) = topic.strip_prefix(root)?.strip_prefix('/')?.split_once('/')?;
    (is_name(device) && device != "group" && device != "pool").then_some((device, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics() -> Topics {
        Topics::new(ROOT, "dev-1").unwrap()
    }

    #[test]
    fn what_is_for_this_device_is_told_from_the_rest() {
        for (topic, about) in [
            ("mien/v1/dev-1/job/req", Some(Incoming::Job)),
            ("mien/v1/dev-1/job/abcdefgh/ctl", Some(Incoming::Control("abcdefgh".into()))),
            ("mien/v1/dev-1/twin/desired", Some(Incoming::Desired)),
            ("mien/v1/dev-1/get", Some(Incoming::Get)),
            ("mien/v1/group/g1/job/req", Some(Incoming::GroupJob("g1".into()))),
            ("mien/v1/pool/p/offer", Some(Incoming::Offer("p".into()))),
            (
                "mien/v1/dev-1/set/profile/night",
                Some(Incoming::Set(vec!["profile".into(), "night".into()])),
            ),
            ("homeassistant/status", Some(Incoming::Home)),
            ("mien/v1/dev-2/job/req", None),
            ("mien/v1/dev-1/job/x y/ctl", None),
            ("mien/v1/dev-1/set", None),
            ("mien/v1/dev-1/set/a/b/c/d", None),
            ("mien/v1/dev-1", None),
            ("mien/v2/dev-1/job/req", None),
            ("", None),
        ] {
            assert_eq!(topics().parse(topic), about, "{topic}");
        }
    }

    #[test]
    fn names_with_wildcards_or_levels_are_none() {
        for bad in ["", "a/b", "+", "#", "a b", "ä", &"a".repeat(65)] {
            assert_eq!(Topics::new(ROOT, bad), None, "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_topic_makes_the_parser_panic(topic in "\\PC{0,60}", rest in "[a-z/+#]{0,30}") {
            let _ = topics().parse(&topic);
            let _ = topics().parse(&format!("mien/v1/dev-1/{rest}"));
            let _ = of_device(ROOT, &topic);
        }
    }
}
