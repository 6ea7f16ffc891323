//! `mien model pack|inspect|verify`: packages as files.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write as _};
use std::path::Path;

use mien_base::clock::{Clock as _, SystemClock};
use mien_vault::draft::{self, Draft};
use mien_vault::install::Packages;
use mien_vault::keyslot::{DevicePublic, Keeper};
use mien_vault::manifest::Manifest;
use mien_vault::package;
use mien_vault::random::SystemRandom;
use mien_vault::sign::{KeyId, KeyPair};
use mien_vault::{Home, keyring};
use serde::Serialize;
use std::sync::Arc;

use super::deeds::Deeds;
use super::error::{Error, Result};
use super::model_args::{PackArgs, PackageArgs};
use super::out;

fn packages(home: &Home) -> Packages {
    Packages::new(home, Arc::new(SystemClock::start()))
}

/// Says loudly when the device's key is no better than a file.
pub(crate) fn warn_of(packages: &Packages) -> Result<()> {
    let device = packages.device()?;
    if device.keeper() == Keeper::File {
        out::note(&format!("warning: this machine's key is kept by {}", Keeper::File.words()));
    }
    Ok(())
}

pub(crate) fn pack(args: &PackArgs) -> Result<()> {
    if args.template {
        return out::bytes(draft::TEMPLATE.as_bytes());
    }
    let (Some(given), Some(output)) = (&args.model, &args.output) else {
        return Err(Error::Usage("a model and -o FILE are needed".to_owned()));
    };
    let (model, beside) = draft::places(given);
    let draft = Draft::read(args.manifest.as_deref().unwrap_or(&beside))?;
    let (manifest, mut input) = draft.measure(&model, SystemClock::start().wall())?;
    seal((&args.key, &args.device), &manifest, &mut input, output)
}

/// Packs a model: signed by the keys of these names, sealed for these devices; this machine's own
/// where none is named.
pub(crate) fn seal(
    (names, for_devices): (&[String], &[String]),
    manifest: &Manifest,
    input: &mut impl Read,
    output: &Path,
) -> Result<()> {
    let home = Home::from_env()?;
    let packages = packages(&home);
    let mut keys: Vec<KeyPair> = Vec::new();
    for name in names {
        keys.push(keyring::signing(&home, name)?);
    }
    if keys.is_empty() {
        packages.trust_itself(&mut Deeds::open(&home))?;
        keys.push(packages.device()?.signer());
    }
    let mut devices: Vec<DevicePublic> = Vec::new();
    for text in for_devices {
        devices.push(text.parse()?);
    }
    if devices.is_empty() {
        warn_of(&packages)?;
        devices.push(packages.device()?.public());
    }
    let part = output.with_extension("mienpkg.part");
    let failed = |source| Error::File { what: "Can't write", path: part.clone(), source };
    let mut out = BufWriter::new(File::create(&part).map_err(failed)?);
    let keys: Vec<&KeyPair> = keys.iter().collect();
    let packed = package::pack(manifest, &keys, &devices, input, &mut out, &mut SystemRandom);
    let written = packed.map_err(Error::from).and_then(|()| {
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(failed)?;
        fs::rename(&part, output).map_err(failed)
    });
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written?;
    out::line(&format!(
        "{}: `{}` {}, for {} device(s), signed by {} key(s)",
        output.display(),
        manifest.id,
        manifest.version,
        devices.len(),
        keys.len()
    ))
}

/// What a package says of itself.
#[derive(Debug, Serialize)]
struct Shown {
    manifest: Manifest,
    signed_by: Vec<KeyId>,
    devices: Vec<KeyId>,
    /// True when all of it was verified and opened; false when it was only looked at.
    verified: bool,
}

fn print(shown: &Shown, json: bool) -> Result<()> {
    if json {
        return out::json(shown);
    }
    let manifest = &shown.manifest;
    let list = |ids: &[KeyId]| ids.iter().map(KeyId::to_string).collect::<Vec<_>>().join(", ");
    let mut rows = vec![
        ("model", format!("{} {}", manifest.id, manifest.version)),
        ("role", format!("{:?}, {:?}", manifest.role, manifest.family).to_lowercase()),
        ("size", format!("{} bytes, {:?}", manifest.bytes, manifest.precision).to_lowercase()),
        ("sha256", manifest.sha256.clone()),
        ("security version", manifest.security_version.to_string()),
        ("interface", manifest.api.to_string()),
        ("licence", manifest.licence.clone()),
        ("commercial use", if manifest.commercial { "permitted" } else { "FORBIDDEN" }.to_owned()),
        ("origin", manifest.origin.clone()),
        ("created", manifest.created.to_string()),
        ("expires", manifest.expires.map_or("never".to_owned(), |at| at.to_string())),
        ("signed by", list(&shown.signed_by)),
        ("for devices", list(&shown.devices)),
    ];
    rows.push(if shown.verified {
        ("verified", "yes: signature, rollback, licence, every chunk and the digest".to_owned())
    } else {
        ("verified", "NO: anybody may have written this; `mien model verify` checks it".to_owned())
    });
    for (name, value) in rows {
        out::line(&format!("{name:17} {value}"))?;
    }
    Ok(())
}

pub(crate) fn inspect(args: &PackageArgs) -> Result<()> {
    let package = Packages::read(&args.package)?;
    let shown = Shown {
        manifest: package.claims()?,
        signed_by: package.signers().collect(),
        devices: package.devices().collect(),
        verified: false,
    };
    print(&shown, args.list.json)
}

pub(crate) fn verify(args: &PackageArgs) -> Result<()> {
    let home = Home::from_env()?;
    let package = packages(&home).verify(&args.package, &mut Deeds::open(&home))?;
    let shown = Shown {
        manifest: package.manifest().clone(),
        signed_by: package.keys().to_vec(),
        devices: package.devices().collect(),
        verified: true,
    };
    print(&shown, args.list.json)
}
