//! Options of the daemon, and of what asks it.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// What is to be done: see the example `mien.toml`
    #[arg(short, long, value_name = "FILE", default_value = "/etc/mien/mien.toml")]
    pub config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Where the daemon listens [default: control.sock in MIEN_HOME, else /run/mien/control.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Prints one JSON document instead of text
    #[arg(long)]
    pub json: bool,
}
