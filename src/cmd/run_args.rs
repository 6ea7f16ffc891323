//! Options of the daemon, and of what asks it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const CAMERA: &str = "\
A DEVICE is by-id:NAME, by-path:NAME, serial:TEXT, bus:TEXT, file:CLIP, pattern, or a node as
/dev/video0. Exit code 10 when no camera is there, or it delivers nothing.";

/// What cameras are there, and what they deliver.
#[derive(Debug, Subcommand)]
pub(crate) enum CameraCommand {
    /// Lists the cameras that are there, and by what mien.toml knows them
    #[command(after_help = "Exit code 10 when no camera is there.\n\nExample:\n  mien camera list")]
    List {
        /// Prints one JSON document instead of text
        #[arg(long)]
        json: bool,
    },
    /// Says what a camera offers, and measures what it delivers
    #[command(after_help = CAMERA)]
    Probe(CameraArgs),
    /// Says once a second what a camera delivers: frames, rate, what was lost or damaged
    #[command(after_help = CAMERA)]
    Watch {
        #[command(flatten)]
        camera: CameraArgs,
        /// How long [default: until Ctrl-C]
        #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
        seconds: Option<u64>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CameraArgs {
    /// By what the camera is known
    #[arg(value_name = "DEVICE")]
    pub device: String,
    /// Width and height, for example 640x480 [default: as the camera does best]
    #[arg(long, value_name = "WxH")]
    pub size: Option<String>,
    /// Frames a second [default: the camera's own]
    #[arg(long, value_name = "N")]
    pub fps: Option<f32>,
    /// Prints JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Works although the kernel offers no seccomp (emulators)
    #[arg(long, hide = true)]
    pub allow_unsandboxed: bool,
}

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
