//! The device's key: where it comes from, and what is made of it.
//!
//! One secret of 32 bytes, from the first of these that has it:
//!
//! ```text
//! hardware    systemd credential `mien-device-key-hw`, sealed by TPM2 or OP-TEE (systemd-creds)
//! credential  systemd credential `mien-device-key`, or keys/device.cred of the home, opened by
//!             systemd-creds
//! key file    keys/device.key of the home: for development, whoever reads the disk has it
//! ```
//! Of it come an X25519 key, for which model packages are sealed, and an Ed25519 key, by which
//! this device signs.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable as _, Kem, Serializable as _};
use memmap2::MmapMut;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize as _, Zeroizing};

use crate::errors::{Error, Result};
use crate::files;
use crate::home::Home;
use crate::random::Random;
use crate::sign::{KeyId, KeyPair};
use crate::text;

/// Name of the credential that a TPM2 or OP-TEE sealed.
pub const HARDWARE: &str = "mien-device-key-hw";
/// Name of the credential that anything else sealed.
pub const CREDENTIAL: &str = "mien-device-key";
/// Longest credential that is read.
const LONGEST: u64 = 4096;

type PrivateKey = <X25519HkdfSha256 as Kem>::PrivateKey;
type WrapKey = <X25519HkdfSha256 as Kem>::PublicKey;

/// What keeps the device's key, most trusted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keeper {
    Hardware,
    Credential,
    File,
}

impl Keeper {
    /// What a user should know about it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Hardware => "a credential that the TPM2 or OP-TEE sealed",
            Self::Credential => "a systemd credential",
            Self::File => {
                "a KEY FILE, FOR DEVELOPMENT ONLY: whoever can read this disk can open every model"
            }
        }
    }
}

/// A secret in memory of its own that is neither swapped nor dumped (where the kernel lets us) and
/// wiped when dropped.
struct Secret {
    page: MmapMut,
    locked: bool,
}

impl Secret {
    fn new(bytes: &[u8; 32]) -> Result<Self> {
        let memory = |source| Error::Memory { source };
        let mut page = MmapMut::map_anon(4096).map_err(memory)?;
        let locked = page.lock().is_ok();
        let _ = page.advise(memmap2::Advice::DontDump);
        page.get_mut(..32).expect("a page is longer").copy_from_slice(bytes);
        Ok(Self { page, locked })
    }

    fn bytes(&self) -> &[u8; 32] {
        self.page.first_chunk().expect("a page is longer")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.page.zeroize();
    }
}

/// The device's key.
pub struct DeviceKey {
    secret: Secret,
    keeper: Keeper,
}

impl DeviceKey {
    /// The key of a secret.
    ///
    /// # Errors
    /// `Memory` when no page can be had for it.
    pub fn from_secret(secret: &[u8; 32], keeper: Keeper) -> Result<Self> {
        Ok(Self { secret: Secret::new(secret)?, keeper })
    }

    /// What keeps it.
    #[must_use]
    pub const fn keeper(&self) -> Keeper {
        self.keeper
    }

    /// True when the kernel keeps it out of swap.
    #[must_use]
    pub const fn locked(&self) -> bool {
        self.secret.locked
    }

    /// The half for which packages are sealed.
    #[must_use]
    pub fn public(&self) -> DevicePublic {
        DevicePublic(X25519HkdfSha256::derive_keypair(self.secret.bytes()).1.to_bytes().into())
    }

    /// The key by which this device signs.
    #[must_use]
    pub fn signer(&self) -> KeyPair {
        let mut hasher = Sha256::new();
        hasher.update(b"mien device signing key, version 1\0");
        hasher.update(self.secret.bytes());
        let mut seed = Zeroizing::new([0; 32]);
        seed.copy_from_slice(&hasher.finalize());
        KeyPair::from_seed(&seed)
    }

    pub(crate) fn private(&self) -> PrivateKey {
        X25519HkdfSha256::derive_keypair(self.secret.bytes()).0
    }
}

impl fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceKey({:?}, {})", self.keeper, self.public().id())
    }
}

/// The public half of a device's key, printed as 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DevicePublic([u8; 32]);

impl DevicePublic {
    /// Its name in a package's wrap table.
    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId::of(&self.0)
    }

    pub(crate) fn key(&self) -> Result<WrapKey> {
        WrapKey::from_bytes(&self.0).map_err(|_| bad())
    }
}

const fn bad() -> Error {
    Error::BadKey { what: "A device's public key", must: "64 digits of 0-9, a-f" }
}

impl fmt::Display for DevicePublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::hex(&self.0))
    }
}

impl FromStr for DevicePublic {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let public = Self(text::unhex(text).ok_or_else(bad)?);
        public.key()?;
        Ok(public)
    }
}

impl TryFrom<String> for DevicePublic {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<DevicePublic> for String {
    fn from(key: DevicePublic) -> Self {
        key.to_string()
    }
}

/// One place where the device's secret may be.
pub trait KeySource {
    /// The key, or `None` when this place has none.
    ///
    /// # Errors
    /// When there is one and it can't be read or is no key: the next place is then not asked.
    fn load(&self) -> Result<Option<DeviceKey>>;
}

/// A credential that systemd opened for this service.
#[derive(Debug, Clone)]
pub struct Credential {
    path: PathBuf,
    keeper: Keeper,
}

impl Credential {
    /// The two that may be in `folder` (systemd's `CREDENTIALS_DIRECTORY`), hardware first.
    #[must_use]
    pub fn both(folder: &Path) -> [Self; 2] {
        [(HARDWARE, Keeper::Hardware), (CREDENTIAL, Keeper::Credential)]
            .map(|(name, keeper)| Self { path: folder.join(name), keeper })
    }
}

impl KeySource for Credential {
    fn load(&self) -> Result<Option<DeviceKey>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let bytes = Zeroizing::new(files::read_bounded(&self.path, LONGEST)?);
        let secret = secret_of(&bytes, &self.path)?;
        DeviceKey::from_secret(&secret, self.keeper).map(Some)
    }
}

/// A credential that systemd-creds sealed for this machine, outside a service.
#[derive(Debug, Clone)]
pub struct SealedFile {
    path: PathBuf,
    tool: PathBuf,
}

impl SealedFile {
    /// The one of a home.
    #[must_use]
    pub fn of(home: &Home) -> Self {
        Self { path: home.keys().join("device.cred"), tool: "systemd-creds".into() }
    }

    /// Seals a secret: by the TPM2 where systemd finds one, else by the host's key.
    ///
    /// # Errors
    /// `Tool` when systemd-creds is missing or fails; `Io`.
    pub fn store(&self, secret: &[u8; 32]) -> Result<()> {
        let name = format!("--name={CREDENTIAL}");
        let text = Zeroizing::new(text::hex(secret));
        let sealed = self.creds(&["encrypt", &name, "-", "-"], text.as_bytes())?;
        if let Some(folder) = self.path.parent() {
            files::private_dir(folder)?;
        }
        files::replace(&self.path, &sealed)
    }

    fn creds(&self, arguments: &[&str], input: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
        let missing = |_| Error::Tool {
            tool: "systemd-creds",
            hint: "install systemd 250 or later, or use a key file (`mien key new --file`)",
        };
        let mut command = Command::new(&self.tool);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(missing)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input).map_err(files::io("write to", &self.tool))?;
        }
        let mut output = Zeroizing::new(Vec::with_capacity(LONGEST as usize));
        if let Some(stdout) = child.stdout.take() {
            let read = stdout.take(LONGEST + 1).read_to_end(&mut output);
            read.map_err(files::io("read from", &self.tool))?;
        }
        let status = child.wait().map_err(files::io("wait for", &self.tool))?;
        if !status.success() || output.len() as u64 > LONGEST {
            return Err(Error::Tool {
                tool: "systemd-creds",
                hint: "it refused; `systemd-creds has-tpm2` and `systemd-creds setup` tell more",
            });
        }
        Ok(output)
    }
}

impl KeySource for SealedFile {
    fn load(&self) -> Result<Option<DeviceKey>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let sealed = files::read_own(&self.path, LONGEST, files::Own::Read)?;
        let name = format!("--name={CREDENTIAL}");
        let bytes = self.creds(&["decrypt", &name, "-", "-"], &sealed)?;
        let secret = secret_of(&bytes, &self.path)?;
        DeviceKey::from_secret(&secret, Keeper::Credential).map(Some)
    }
}

/// A key file, for development.
#[derive(Debug, Clone)]
pub struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// The one of a home.
    #[must_use]
    pub fn of(home: &Home) -> Self {
        Self { path: home.keys().join("device.key") }
    }

    /// Writes a secret down, for its owner only.
    ///
    /// # Errors
    /// `Io`.
    pub fn store(&self, secret: &[u8; 32]) -> Result<()> {
        if let Some(folder) = self.path.parent() {
            files::private_dir(folder)?;
        }
        let text = Zeroizing::new(format!("{}\n", text::hex(secret)));
        files::replace(&self.path, text.as_bytes())
    }
}

impl KeySource for KeyFile {
    fn load(&self) -> Result<Option<DeviceKey>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let bytes = Zeroizing::new(files::read_own(&self.path, LONGEST, files::Own::Read)?);
        let secret = secret_of(&bytes, &self.path)?;
        DeviceKey::from_secret(&secret, Keeper::File).map(Some)
    }
}

/// 32 bytes, or 64 hex digits with or without an end of line.
fn secret_of(bytes: &[u8], path: &Path) -> Result<Zeroizing<[u8; 32]>> {
    let plain = <[u8; 32]>::try_from(bytes).ok();
    let digits = || std::str::from_utf8(bytes).ok().and_then(|t| text::unhex(t.trim_ascii_end()));
    let damaged = || {
        let why = "a device key has 32 bytes or 64 digits of 0-9, a-f".to_owned();
        Error::Damaged { path: path.to_owned(), why }
    };
    plain.or_else(digits).map(Zeroizing::new).ok_or_else(damaged)
}

/// The folder where systemd puts the credentials of this service.
#[must_use]
pub fn credentials() -> Option<PathBuf> {
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    folder.filter(|folder| folder.is_absolute())
}

/// The places of a home, in order of trust.
#[must_use]
pub fn sources(home: &Home, credentials: Option<&Path>) -> Vec<Box<dyn KeySource>> {
    let mut sources: Vec<Box<dyn KeySource>> = Vec::new();
    for credential in credentials.map(Credential::both).into_iter().flatten() {
        sources.push(Box::new(credential));
    }
    sources.push(Box::new(SealedFile::of(home)));
    sources.push(Box::new(KeyFile::of(home)));
    sources
}

/// The key of the first place that has one.
///
/// # Errors
/// Of a place that has one and can't give it.
pub fn load(sources: &[Box<dyn KeySource>]) -> Result<Option<DeviceKey>> {
    for source in sources {
        if let Some(key) = source.load()? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// The key of this machine: of a place that has one, else a new key file.
///
/// # Errors
/// Of [`load`]; `Random`, `Io`.
pub fn of_machine(home: &Home, random: &mut dyn Random) -> Result<DeviceKey> {
    let sources = sources(home, credentials().as_deref());
    if let Some(key) = load(&sources)? {
        return Ok(key);
    }
    files::private_dir(&home.keys())?;
    let _lock = files::Lock::wait(&home.keys().join(".lock"))?;
    if let Some(key) = load(&sources)? {
        return Ok(key);
    }
    KeyFile::of(home).store(&*new_secret(random)?)?;
    load(&sources)?.ok_or_else(|| Error::Key {
        key: "device.key".to_owned(),
        why: "was written and is gone again".to_owned(),
    })
}

/// A new secret of a device.
///
/// # Errors
/// `Random`.
pub fn new_secret(random: &mut dyn Random) -> Result<Zeroizing<[u8; 32]>> {
    let mut secret = Zeroizing::new([0; 32]);
    random.fill(&mut *secret).map_err(|source| Error::Random { source })?;
    Ok(secret)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::files::tests::Scratch;
    use crate::random::tests::Counted;
    use std::os::unix::fs::PermissionsExt as _;

    /// A key of no place: what a test is about is not where it comes from.
    pub(crate) fn device(n: u8) -> DeviceKey {
        DeviceKey::from_secret(&[n; 32], Keeper::File).unwrap()
    }

    #[test]
    fn hardware_comes_before_credential_before_file() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0.join("home"));
        let folder = scratch.0.join("credentials");
        std::fs::create_dir(&folder).unwrap();
        let keeper = || load(&sources(&home, Some(&folder))).unwrap().map(|key| key.keeper());
        assert_eq!(keeper(), None);
        KeyFile::of(&home).store(&[1; 32]).unwrap();
        assert_eq!(keeper(), Some(Keeper::File));
        std::fs::write(folder.join(CREDENTIAL), [2; 32]).unwrap();
        assert_eq!(keeper(), Some(Keeper::Credential));
        std::fs::write(folder.join(HARDWARE), text::hex(&[3; 32])).unwrap();
        let key = load(&sources(&home, Some(&folder))).unwrap().unwrap();
        assert_eq!(key.keeper(), Keeper::Hardware);
        assert_eq!(key.public(), device(3).public());
    }

    #[test]
    fn a_place_with_a_damaged_key_is_named_and_no_other_is_taken_instead() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0.join("home"));
        KeyFile::of(&home).store(&[1; 32]).unwrap();
        std::fs::write(scratch.0.join(HARDWARE), b"short").unwrap();
        let error = load(&sources(&home, Some(&scratch.0))).unwrap_err();
        assert!(error.to_string().contains(HARDWARE), "{error}");
    }

    #[test]
    fn a_machine_without_a_key_gets_one_file_that_only_its_owner_reads() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        let made = of_machine(&home, &mut Counted(0)).unwrap();
        assert_eq!(made.keeper(), Keeper::File);
        let again = of_machine(&home, &mut Counted(9)).unwrap();
        assert_eq!(made.public(), again.public());
        assert_eq!(made.signer().id(), again.signer().id());
        let mode = std::fs::metadata(home.keys().join("device.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(Keeper::File.words().contains("DEVELOPMENT"));
    }

    /// Stands in for systemd-creds: "seals" by writing what it is given backwards.
    fn fake_creds(scratch: &Scratch) -> PathBuf {
        let path = scratch.0.join("fake-creds");
        std::fs::write(&path, "#!/bin/sh\n[ \"$2\" = --name=mien-device-key ] || exit 1\nrev\n")
            .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    #[test]
    fn a_sealed_credential_is_opened_by_its_tool_and_never_stored_plain() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        let sealed = SealedFile { tool: fake_creds(&scratch), ..SealedFile::of(&home) };
        assert!(sealed.load().unwrap().is_none());
        let secret = *new_secret(&mut Counted(5)).unwrap();
        sealed.store(&secret).unwrap();
        let stored = std::fs::read_to_string(home.keys().join("device.cred")).unwrap();
        assert!(!stored.contains(&text::hex(&secret)));
        let key = sealed.load().unwrap().unwrap();
        assert_eq!(key.keeper(), Keeper::Credential);
        let plain = DeviceKey::from_secret(&secret, Keeper::File).unwrap();
        assert_eq!(key.public(), plain.public());
        let missing = SealedFile { tool: "/nonexistent".into(), ..sealed };
        assert!(matches!(missing.load(), Err(Error::Tool { .. })));
    }

    #[test]
    fn nothing_of_the_secret_is_printed_and_the_two_halves_differ() {
        let key = device(7);
        assert!(!format!("{key:?}").contains("0707"));
        assert_ne!(key.public().to_string(), key.signer().public().to_string());
        assert_eq!(key.public().to_string().parse::<DevicePublic>().unwrap(), key.public());
        assert!("00".parse::<DevicePublic>().is_err());
    }
}
