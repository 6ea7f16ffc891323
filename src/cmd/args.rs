//! The command line: every subcommand and option, with examples and exit codes.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::fleet_args::FleetCommand;
use super::job_args::JobCommand;
use super::model_args::{KeyCommand, ModelCommand};
pub(crate) use super::process_args::{
    ClipArgs, CornerArg, DetectorArgs, FormatArg, LabelArg, MarkArgs, MaskArg, MaskArgs, ModeArg,
    OrderArg, SelectArgs,
};
pub(crate) use super::run_args::{AskArgs, CameraCommand, DaemonArgs};
use super::source_args::{AuditCommand, ConsentCommand, SourceCommand};

const EXIT_CODES: &str = "\
Exit codes: 0 done · 1 fault of ours · 2 usage · 3 file · 4 bad input · 5 too large · 6 model ·
7 no consent · 8 content refused · 9 not marked · 10 unreachable · 11 late · 12 worker died ·
13 quarantined · 130 stopped";

/// Finds faces and swaps, anonymises or passes them by consent, and marks what it altered.
#[derive(Debug, Parser)]
#[command(name = "mien", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the main job on real models and pictures, in one folder to look at
    #[command(after_help = "Examples:\n  mien demo\n  mien demo -o /tmp/look")]
    Demo(DemoArgs),
    /// Anonymises or swaps the faces of pictures and clips
    #[command(after_long_help = PROCESS_HELP)]
    Process(Box<ProcessArgs>),
    /// Reads the marks of a picture back
    #[command(
        after_help = "Exit code 0 when the marks are whole, 9 and the reason when not.\n\nExamples:\n  mien verify out.jpg\n  mien verify --json out.png"
    )]
    Verify(VerifyArgs),
    /// Finds the faces of a picture or a clip and prints or draws them
    #[command(
        after_help = "Examples:\n  mien detect group.jpg\n  mien detect group.jpg --json\n  mien detect group.jpg --draw faces.png\n  mien detect clip.mp4 --range 0:10-0:20     one line of JSON a frame"
    )]
    Detect(DetectArgs),
    /// Enrols, lists, shows and forgets source faces
    #[command(subcommand)]
    Source(SourceCommand),
    /// Records consent, takes it back, lists it
    #[command(subcommand)]
    Consent(ConsentCommand),
    /// Shows, asks, checks and exports the record of what was done
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Gets, packs, installs and lists models
    #[command(subcommand)]
    Model(ModelCommand),
    /// Makes, shows, rotates and revokes keys, and says whom this machine trusts
    #[command(subcommand)]
    Key(KeyCommand),
    /// Orders, lists, watches and steers jobs of this machine
    #[command(subcommand)]
    Job(JobCommand),
    /// Orders jobs over a broker, and watches devices (for operators)
    #[command(subcommand)]
    Fleet(FleetCommand),
    /// Measures this machine, and compares with a stored run
    #[command(
        after_help = "Examples:\n  mien bench\n  mien bench --sizes 720p,1080p --rounds 9 --json > now.json\n  mien bench --compare before.json"
    )]
    Bench(BenchArgs),
    /// Checks models, sources, the sandbox and the machine, or a configuration
    #[command(after_help = "Examples:\n  mien check\n  mien check --config mien.toml")]
    Check(CheckArgs),
    /// Lists cameras, says what they offer, measures what they deliver
    #[command(subcommand)]
    Camera(CameraCommand),
    /// Runs cameras, jobs and the fleet's orders until it is stopped
    #[command(
        after_help = "SIGTERM ends it cleanly; SIGHUP, or `mien reload`, applies a changed file.\n\nExamples:\n  mien check --config mien.toml\n  mien run --config mien.toml"
    )]
    Run(DaemonArgs),
    /// Says how the running daemon stands: pipelines, outputs, machine
    #[command(after_help = "Examples:\n  mien status\n  mien status --json")]
    Status(AskArgs),
    /// Exit code 0 when the running daemon does all that it should, else the reasons
    #[command(
        after_help = "Exit code 0 healthy, 1 not healthy, 10 no daemon answers.\n\nExamples:\n  mien health\n  mien health --socket /run/mien/control.sock"
    )]
    Health(AskArgs),
    /// Makes the running daemon apply its changed configuration
    #[command(
        after_help = "What did not change goes on undisturbed; a file with faults changes nothing.\n\nExamples:\n  mien reload"
    )]
    Reload(AskArgs),
    /// Prints a completion script for a shell
    #[command(
        after_help = "Example:\n  mien completions bash > ~/.local/share/bash-completion/completions/mien"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// The sandboxed process that reads pictures; started by the others
    #[command(hide = true)]
    Worker,
}

const PROCESS_HELP: &str = "\
Actions (for --anonymise, --others and rule files):
  solid[:#rrggbb]   one colour; the default, nothing of the face is left
  mosaic[:CELLS]    at most 6 cells across the face, with noise
  blur[:SIGMA]      Gaussian, SIGMA in face widths, at least 0.15
  image=FILE        a picture over each face
  synthetic[:SEED]  a made face
  swap:NAME         the face of an enrolled source (rule files)
  pass              left as it is

Rule file (TOML): who gets what; strangers get the action of the command line.
  [[rule]]
  who = \"alice\"
  do = \"swap:bob\"
  [[rule]]
  who = \"carol\"
  do = \"pass\"

Clips (MP4 with H.264, QuickTime, Y4M) keep their frame rate, time stamps, rotation and sound. What
is done when a clip is stopped is kept beside its output: the same command goes on from there.

Examples:
  mien process photo.jpg -o out.jpg
  mien process clip.mp4 -o out.mp4 --anonymise blur
  mien process clip.mp4 -o out.mp4 --swap hopper --range 1:30-2:00 --no-audio
  ffmpeg -i x.mkv -f yuv4mpegpipe - | mien process - -o - --format y4m | ffplay -
  mien process photos/ -o out/ --anonymise blur --preview sheet.png
  mien process photo.jpg -o out.jpg --swap hopper --others blur
  mien process photo.jpg -o out.jpg --swap me.jpg --consent me.toml
  mien process group.png -o out.png --rules rules.toml --json
  cat photo.jpg | mien process - -o - --anonymise mosaic > out.jpg";

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder for the pictures and the report
    #[arg(short, long, default_value = "mien-demo", value_name = "DIR")]
    pub output: PathBuf,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ProcessArgs {
    /// Pictures, clips, or folders of them; `-` is standard input
    #[arg(required = true, value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// File, or folder for several inputs; `-` is standard output
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// What is done to the selected faces [default: solid]
    #[arg(long, value_name = "HOW", conflicts_with = "swap")]
    pub anonymise: Option<String>,
    /// Puts a source's face on the selected faces: an enrolled name, or a picture with --consent
    #[arg(long, value_name = "SOURCE")]
    pub swap: Option<String>,
    /// Consent record for a source that is given as a picture
    #[arg(long, value_name = "FILE", requires = "swap")]
    pub consent: Option<PathBuf>,
    /// Who gets what, by recognised identity
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// What is done to the faces that are not selected
    #[arg(long, value_name = "ACTION", default_value = "solid")]
    pub others: String,
    /// Generator model for swaps (one of your own, see `mien model list`) [default: mesh]
    #[arg(long, value_name = "MODEL")]
    pub swapper: Option<String>,
    /// Share of the source in a generator's latent, 0 to 1
    #[arg(long, default_value_t = 0.5, value_name = "W")]
    pub weight: f32,
    /// Crop of a generator in multiples of its own size, 1 to 4
    #[arg(long, default_value_t = 1, value_name = "K")]
    pub boost: u32,
    #[command(flatten)]
    pub detect: DetectorArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub mask: MaskArgs,
    #[command(flatten)]
    pub mark: MarkArgs,
    /// Certificates (PEM, the signer's own first) for C2PA content credentials in each output
    #[cfg(feature = "c2pa")]
    #[arg(long, value_name = "FILE", requires = "c2pa_key")]
    pub c2pa_chain: Option<PathBuf>,
    /// Ed25519 key (PEM, PKCS #8) that signs them
    #[cfg(feature = "c2pa")]
    #[arg(long, value_name = "FILE", requires = "c2pa_chain")]
    pub c2pa_key: Option<PathBuf>,
    /// Writes a before/after sheet
    #[arg(long, value_name = "FILE")]
    pub preview: Option<PathBuf>,
    /// Format of the outputs [default: by the output's name, else the input's]
    #[arg(long, value_enum)]
    pub format: Option<FormatArg>,
    /// Quality of JPEG and H.264, 1 to 100 [default: 92 for pictures, as the input for clips]
    #[arg(long, value_name = "Q", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub quality: Option<u8>,
    #[command(flatten)]
    pub clip: ClipArgs,
    /// Goes into folders below the given ones
    #[arg(short, long)]
    pub recursive: bool,
    #[command(flatten)]
    pub run: RunArgs,
}

/// What every command that starts a worker understands.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Prints one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Says nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Compute threads [default: the machine's cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Job id, 32 hex digits, to repeat a run to the byte [default: random]
    #[arg(long, value_name = "HEX", help_heading = "Repeatability")]
    pub job: Option<String>,
    /// Wall clock of the job, seconds since 1970, to repeat a run to the byte [default: now]
    #[arg(long, value_name = "SECONDS", help_heading = "Repeatability")]
    pub clock: Option<u64>,
    /// Lets an output appear although its row in the record can't be written
    #[arg(long, help_heading = "Risks")]
    pub allow_unaudited: bool,
    /// Works although the kernel offers no seccomp (emulators)
    #[arg(long, hide = true)]
    pub allow_unsandboxed: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The picture; `-` is standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DetectArgs {
    /// The picture or clip; `-` is standard input
    pub file: PathBuf,
    /// Only this part of a clip: seconds, m:s or h:m:s; either side may be left out
    #[arg(long, value_name = "START-END")]
    pub range: Option<String>,
    /// Draws boxes and landmarks into a picture
    #[arg(long, value_name = "FILE")]
    pub draw: Option<PathBuf>,
    #[command(flatten)]
    pub detect: DetectorArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Picture heights, 240p to 2160p
    #[arg(long, value_delimiter = ',', default_value = "240p,480p,720p,1080p,2160p")]
    pub sizes: Vec<String>,
    /// Measured runs of each size, after one cold run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// What is measured
    #[arg(long, default_value = "blur", value_name = "ACTION")]
    pub action: String,
    /// A stored run (JSON); exit code 1 when a median is more than 10 % slower in ratio
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// A picture with a face [default: the demo's]
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Checks this configuration of `mien run` instead, and starts nothing
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub run: RunArgs,
}
