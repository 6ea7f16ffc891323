//! `mien key`: makes, shows, rotates and revokes keys, and says whom this machine trusts.

use std::io;
use std::sync::Arc;

use mien_base::clock::{Clock as _, SystemClock, Wall};
use mien_daemon::store::Store;
use mien_vault::install::Packages;
use mien_vault::keyring::Held;
use mien_vault::keyslot::{self, DeviceKey, DevicePublic, Keeper};
use mien_vault::random::SystemRandom;
use mien_vault::sign::{KeyId, PublicKey};
use mien_vault::trust::{KeyRole, TrustStore, TrustedKey};
use mien_vault::{Home, keyring};
use serde::Serialize;

use super::deeds::Deeds;
use super::error::{Error, Result};
use super::model_args::{KeyCommand, ListArgs, NewKeyArgs, TrustArgs};
use super::{out, record};

pub(crate) fn run(command: &KeyCommand) -> Result<()> {
    let home = Home::from_env()?;
    let now = SystemClock::start().wall();
    match command {
        KeyCommand::New(args) => new(&home, args, now),
        KeyCommand::Show { name, list } => show(&home, name.as_deref(), *list),
        KeyCommand::Rotate { name } => rotate(&home, name.as_deref(), now),
        KeyCommand::Revoke { id } => revoke(&home, id, now),
        KeyCommand::Trust(args) => trust(&home, args, now),
        KeyCommand::List(args) => list(&home, *args, now),
    }
}

fn new(home: &Home, args: &NewKeyArgs, now: Wall) -> Result<()> {
    let mut audit = Deeds::open(home);
    if let Some(name) = &args.name {
        let roles = args.role.iter().copied().map(KeyRole::from).collect();
        let random = &mut SystemRandom;
        let key = keyring::new_signing(home, name, &roles, now, random, &mut audit)?;
        return out::line(&format!("{name}: {}\npublic: {}", key.id(), key.public()));
    }
    let keeper = if args.file { Keeper::File } else { Keeper::Credential };
    let key = keyring::new_device(home, keeper, &mut SystemRandom, &mut audit)?;
    warn(keeper);
    out::line(&format!("device: {}\npublic: {}", key.public().id(), key.public()))?;
    if keeper == Keeper::Credential {
        out::line(
            "a service gets it by LoadCredentialEncrypted=mien-device-key:<home>/keys/device.cred",
        )?;
    }
    Ok(())
}

fn warn(keeper: Keeper) {
    if keeper == Keeper::File {
        out::note(&format!("warning: this key is kept by {}", keeper.words()));
    }
}

/// The public halves of this machine's key.
#[derive(Debug, Serialize)]
struct Device {
    keeper: Keeper,
    locked: bool,
    id: KeyId,
    /// Packages are sealed for it.
    public: DevicePublic,
    signer: KeyId,
    /// What it signs is verified by it.
    signs: PublicKey,
}

fn show(home: &Home, name: Option<&str>, list: ListArgs) -> Result<()> {
    if let Some(name) = name {
        let key = keyring::signing(home, name)?;
        if list.json {
            let public = key.public();
            return out::json(
                &serde_json::json!({ "name": name, "id": key.id(), "public": public }),
            );
        }
        return out::line(&format!("{name}: {}\npublic: {}", key.id(), key.public()));
    }
    let key = keyslot::load(&keyslot::sources(home, keyslot::credentials().as_deref()))?;
    let none = || Error::Usage("This machine has no key yet; `mien key new` makes it".to_owned());
    let key = key.ok_or_else(none)?;
    let signer = key.signer();
    let device = Device {
        keeper: key.keeper(),
        locked: key.locked(),
        id: key.public().id(),
        public: key.public(),
        signer: signer.id(),
        signs: signer.public(),
    };
    if list.json {
        return out::json(&device);
    }
    warn(device.keeper);
    out::line(&format!("device: {}, kept by {}", device.id, device.keeper.words()))?;
    out::line(&format!("public: {}   (packages are sealed for it)", device.public))?;
    out::line(&format!("signer: {}", device.signer))?;
    out::line(&format!("public: {}   (what this machine signs)", device.signs))
}

fn rotate(home: &Home, name: Option<&str>, now: Wall) -> Result<()> {
    let mut audit = Deeds::open(home);
    if let Some(name) = name {
        let key = keyring::rotate_signing(home, name, now, &mut SystemRandom, &mut audit)?;
        let days = keyring::GRACE.as_secs() / 86_400;
        out::line(&format!("{name}: {}\npublic: {}", key.id(), key.public()))?;
        return out::line(&format!("the old key holds {days} days longer"));
    }
    let packages = Packages::new(home, Arc::new(SystemClock::start()));
    let clock = Arc::new(SystemClock::start());
    let store = record::open(home, clock, true)?;
    let mut sources = Sources(&store);
    let (key, count) =
        keyring::rotate_device(&packages, home, &mut sources, &mut SystemRandom, &mut audit)?;
    warn(key.keeper());
    out::line(&format!("device: {}\npublic: {}", key.public().id(), key.public()))?;
    let (packages, sources) = (count.packages, count.sources);
    out::line(&format!(
        "{packages} packages and {sources} sources are sealed for the new key alone"
    ))
}

/// The enrolled sources, whose keys stand under the machine's.
pub(super) struct Sources<'a>(pub(super) &'a Store);

impl Held for Sources<'_> {
    fn rewrap(&mut self, own: &DeviceKey, devices: &[&DeviceKey]) -> io::Result<usize> {
        self.0.rewrap(own, devices).map_err(|error| io::Error::other(Error::from(error).chain()))
    }
}

fn revoke(home: &Home, id: &str, now: Wall) -> Result<()> {
    let key = keyring::revoke(home, id.parse()?, now, &mut Deeds::open(home))?;
    out::line(&format!("{id} ({}): revoked; nothing that it signed holds any more", key.name))
}

fn trust(home: &Home, args: &TrustArgs, now: Wall) -> Result<()> {
    let public: PublicKey = args.public.parse()?;
    let key = TrustedKey {
        public,
        name: args.name.clone(),
        roles: args.role.iter().copied().map(KeyRole::from).collect(),
        added: now,
        expires: args.days.map(|days| Wall(now.0.saturating_add(days * 86_400))),
        revoked: None,
    };
    keyring::take_in(home, key, &mut Deeds::open(home))?;
    out::line(&format!("{} ({}): trusted", public.id(), args.name))
}

/// A trusted key as it is listed.
#[derive(Debug, Serialize)]
struct Row<'a> {
    id: KeyId,
    #[serde(flatten)]
    key: &'a TrustedKey,
    holds: bool,
}

fn list(home: &Home, args: ListArgs, now: Wall) -> Result<()> {
    let trust = TrustStore::open(home)?;
    let holds = |key: &TrustedKey| key.roles.iter().any(|role| key.fault(*role, now).is_none());
    let rows: Vec<Row<'_>> = trust
        .keys()
        .iter()
        .map(|key| Row { id: key.public.id(), key, holds: holds(key) })
        .collect();
    if args.json {
        return out::json(&rows);
    }
    if rows.is_empty() {
        return out::line("nobody is trusted yet; `mien key trust` takes a key in");
    }
    let text: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let roles: Vec<&str> = row.key.roles.iter().map(|role| role.name()).collect();
            let state = match (row.key.revoked, row.key.expires) {
                (Some(at), _) => format!("revoked {at}"),
                (None, Some(at)) if at <= now => format!("expired {at}"),
                (None, Some(at)) => format!("until {at}"),
                (None, None) => "holds".to_owned(),
            };
            vec![row.id.to_string(), row.key.name.clone(), roles.join(","), state]
        })
        .collect();
    out::line(&out::table(&["key", "whose", "may sign", "state"], &text))
}
