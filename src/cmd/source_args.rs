//! The command line of sources, consent and the record.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use mien_base::limits;

use super::args::RunArgs;
use super::model_args::ListArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Enrols a face, with the consent of its person
    #[command(after_long_help = ENROL_HELP)]
    Enrol(Box<EnrolArgs>),
    /// Lists the enrolled sources
    List(ListArgs),
    /// Shows one source: its quality, and what was agreed to
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Erases a source: portrait, embedding, key and consent, and looks for what is left
    Forget {
        /// Its name
        name: String,
        #[command(flatten)]
        list: ListArgs,
    },
}

const ENROL_HELP: &str = "\
Consent is a record of who agreed to what, for how long. Write it as a file (TOML):
  identity = \"hopper\"
  subject = \"gh-1906\"            # pseudonym of the person
  purpose = \"demonstration\"
  scope = [\"swap\", \"reveal\"]    # swap: on others' faces · reveal: shown unaltered
  granted = 2026-11-30
  expires = 2027-11-30
  operator = \"front desk\"
or give the same by options. Without consent a source is enrolled to be recognised only.

Examples:
  mien source enrol hopper hopper.jpg --consent hopper.toml
  mien source enrol hopper hopper.jpg --subject gh-1906 --purpose demo --scope swap --days 365
  mien source enrol stranger photo.jpg";

#[derive(Debug, Args)]
pub(crate) struct EnrolArgs {
    /// Name of the identity: a-z, 0-9, `.`, `_`, `-`
    pub name: String,
    /// A picture with this one face
    pub file: PathBuf,
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Replaces a source of the same name
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub run: RunArgs,
}

/// A consent record, as a file or by options.
#[derive(Debug, Args)]
pub(crate) struct ConsentArgs {
    /// Consent record
    #[arg(long, value_name = "FILE", conflicts_with_all = ["subject", "purpose", "scope", "days"])]
    pub consent: Option<PathBuf>,
    /// Pseudonym of the person who agreed
    #[arg(long, requires_all = ["purpose", "scope", "days"])]
    pub subject: Option<String>,
    /// Why
    #[arg(long, requires = "subject")]
    pub purpose: Option<String>,
    /// What is permitted
    #[arg(long, value_enum, value_delimiter = ',', requires = "subject")]
    pub scope: Vec<ScopeArg>,
    /// For how many days
    #[arg(long, requires = "subject", value_parser = clap::value_parser!(u64).range(1..=36_500))]
    pub days: Option<u64>,
    /// Who enters the record
    #[arg(long, default_value = "operator", requires = "subject")]
    pub operator: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConsentCommand {
    /// Records that a person agreed; the record is signed
    #[command(
        after_help = "Examples:\n  mien consent grant hopper --consent hopper.toml\n  mien consent grant hopper --subject gh-1906 --purpose demo --scope swap --days 30\n  mien consent grant hopper --signed hopper.consent     # of another desk, whose key is trusted"
    )]
    Grant {
        /// The enrolled source
        name: String,
        #[command(flatten)]
        consent: ConsentArgs,
        /// A record that a trusted key of role consent signed (`mien consent sign`)
        #[arg(long, value_name = "FILE", conflicts_with_all = ["consent", "subject", "purpose", "scope", "days"])]
        signed: Option<PathBuf>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Signs a record for other machines, by a signing key of this one
    #[command(
        after_help = "Examples:\n  mien key new desk --role consent\n  mien consent sign hopper hopper.toml --key desk -o hopper.consent\n  mien key trust PUBLIC --name desk --role consent      # there, once"
    )]
    Sign {
        /// The source that it is for
        name: String,
        /// Consent record
        record: PathBuf,
        /// Signing key
        #[arg(long, value_name = "NAME")]
        key: String,
        /// The signed record
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Takes consent back, from now on and from the next frame of what runs
    #[command(
        after_help = "Examples:\n  mien consent revoke hopper\n  mien consent revoke hopper --id c-0123456789abcdef"
    )]
    Revoke {
        /// The enrolled source
        name: String,
        /// This record alone [default: all of the source]
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// Who enters it
        #[arg(long, default_value = "operator")]
        operator: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Lists the records: what holds, and why what doesn't
    List {
        /// Of this source alone
        name: Option<String>,
        #[command(flatten)]
        list: ListArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Shows the newest rows
    Tail {
        /// How many
        #[arg(short = 'n', long, default_value_t = 20)]
        rows: u64,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Shows the rows that match, newest first
    #[command(
        after_help = "Examples:\n  mien audit query --who hopper --from 2026-11-01\n  mien audit query --kind refused --json\n  mien audit query --camera door --region 0,0,50,100 --from 2026-11-30 --until 2026-12-01"
    )]
    Query(AuditQueryArgs),
    /// Follows the chain from its first row, or checks an export
    #[command(
        after_help = "Exit code 0 when it holds, 1 and what does not when not. With FILE nothing but the\nfile, its signature and the public key is needed: no database, no home.\n\nExamples:\n  mien audit verify\n  mien audit verify november.jsonl --key 5f3c…"
    )]
    Verify(AuditVerifyArgs),
    /// Writes rows as JSON lines, with a detached signature in FILE.sig
    #[command(
        after_help = "Examples:\n  mien audit export all.jsonl\n  mien audit export november.jsonl --from 2026-11-01 --until 2026-12-01"
    )]
    Export {
        /// Where to
        file: PathBuf,
        /// From this time on: a date, a time in UTC, or seconds since 1970
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// Before this time
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Seals all rows into a signed segment and begins the table anew; the chain goes on. Done by
    /// itself at a million rows, or when the oldest is a quarter of a year old
    Seal {
        #[command(flatten)]
        list: ListArgs,
    },
    /// Removes the files of old sealed segments; the chain holds without them
    #[command(
        after_help = "A segment that should be kept elsewhere is copied with its .sig first.\n\nExamples:\n  mien audit prune\n  mien audit prune --days 365"
    )]
    Prune {
        /// For how many days segments are kept
        #[arg(long, value_name = "N", default_value_t = limits::AUDIT_DAYS, value_parser = clap::value_parser!(u64).range(limits::AUDIT_DAYS..=36_500))]
        days: u64,
        #[command(flatten)]
        list: ListArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AuditQueryArgs {
    /// From this time on: a date, a time in UTC, or seconds since 1970
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Of this camera
    #[arg(long, value_name = "NAME")]
    pub camera: Option<String>,
    /// With a face that touches this part of the picture, in percent
    #[arg(long, value_name = "X0,Y0,X1,Y1")]
    pub region: Option<String>,
    /// About or naming this identity
    #[arg(long, value_name = "NAME")]
    pub who: Option<String>,
    /// Of this kind
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Of this job
    #[arg(long, value_name = "HEX")]
    pub job: Option<String>,
    /// Before this row: the next page
    #[arg(long, value_name = "ROW")]
    pub before: Option<u64>,
    /// Most rows
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub most: u64,
    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerifyArgs {
    /// An export or a sealed segment [default: the record of this machine]
    pub file: Option<PathBuf>,
    /// Public key, 64 hex digits, that must have signed it
    #[arg(long, value_name = "HEX", requires = "file")]
    pub key: Option<String>,
    /// The detached signature [default: FILE.sig]
    #[arg(long, value_name = "FILE", requires = "file")]
    pub signature: Option<PathBuf>,
    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArg {
    Swap,
    Reveal,
}
