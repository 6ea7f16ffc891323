//! The command line of jobs on this machine.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Orders a job; without a running daemon it is done here and now
    #[command(after_long_help = SUBMIT_HELP)]
    Submit(Box<SubmitArgs>),
    /// Lists jobs, those that are open first
    List(JobListArgs),
    /// Shows one job with its document and its attempts
    Show(JobArgs),
    /// Ends a job; answered by what it becomes, or the end that it already has
    Cancel(JobArgs),
    /// Lets a job wait; what it did so far is kept
    Pause(JobArgs),
    /// Lets a paused job go on
    Resume(JobArgs),
    /// Follows a job to its end
    Watch(JobArgs),
}

const SUBMIT_HELP: &str = "\
Parameters are those of the contract (contract/job.schema.json, contract/examples). For pictures and
clips --input and --output fill them in; without --rules every face is covered.

Examples:
  mien job submit image.process --input in.jpg --output /var/lib/mien/out/out.jpg
  mien job submit clip.process --input in.mp4 --output out.mp4 --timeout 3600
  mien job submit image.process --input in.jpg --output out.jpg \\
      --rules '[{\"who\":\"anyone\",\"then\":{\"do\":\"anonymise\",\"how\":\"mosaic\"}}]'
  mien job submit selftest.run
  mien job submit media.purge --params '{\"before\":1800000000000}'";

#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// What to do, as in the contract: image.process, clip.process, selftest.run, …
    pub kind: String,
    /// Parameters as JSON
    #[arg(long, value_name = "JSON")]
    pub params: Option<String>,
    /// The picture or clip to read
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Where the result goes
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Who gets what, as JSON
    #[arg(long, value_name = "JSON")]
    pub rules: Option<String>,
    /// Id of the job, 8 to 64 of A-Z, a-z, 0-9, `-`, `_` [default: random]
    #[arg(long)]
    pub id: Option<String>,
    /// gold, silver or bronze
    #[arg(long, default_value = "silver")]
    pub qos: String,
    /// 0 to 9, 9 goes first
    #[arg(long, default_value_t = 5)]
    pub priority: u8,
    /// Seconds for the whole
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u32>,
    /// Seconds without progress after which it is stopped
    #[arg(long, value_name = "SECONDS")]
    pub stall: Option<u32>,
    /// Seconds within which it must begin
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    pub expires: u64,
    /// Says what was ordered and does not wait for its end
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub how: JobOut,
}

#[derive(Debug, Args)]
pub(crate) struct JobListArgs {
    /// Only jobs that have not ended
    #[arg(long)]
    pub open: bool,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    pub most: u64,
    #[command(flatten)]
    pub how: JobOut,
}

#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// Id of the job
    pub id: String,
    #[command(flatten)]
    pub how: JobOut,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct JobOut {
    /// Prints JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Control socket of the daemon [default: control.sock in the home]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Works although the kernel offers no seccomp (emulators)
    #[arg(long, hide = true)]
    pub allow_unsandboxed: bool,
}
