//! The command line of an operator of a fleet.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Signs a job and sends it to a device, a group or a pool
    #[command(after_long_help = FLEET_HELP)]
    Submit(Box<FleetSubmitArgs>),
    /// Follows devices and their jobs
    Watch(WatchArgs),
    /// Ends a job of a device
    Cancel(SteerArgs),
    /// Lets a job of a device wait
    Pause(SteerArgs),
    /// Lets a paused job of a device go on
    Resume(SteerArgs),
    /// Gets, sets or compares the desired state of a device
    Twin(TwinArgs),
    /// Offers jobs to whoever of a pool is free, until each has one result
    Pool(Box<PoolArgs>),
    /// Brings a job to many devices in waves
    Rollout(Box<RolloutArgs>),
    /// Asks a broker whether it does what the contract counts on
    #[command(
        after_help = "Plays small scenes with clients and topics of its own, and leaves nothing behind. Exit code 1 when\na row is not what the contract counts on. It needs a broker that lets one user have several clients."
    )]
    Probe(Reach),
}

const FLEET_HELP: &str = "\
The key is one of this machine's (`mien key new NAME --role operate`); devices must trust it.

Examples:
  mien fleet submit dev-1 selftest.run --broker mqtts://b:8883 --ca ca.pem \\
      --certificate me.pem --tls-key me.key --as ops
  mien fleet submit group/doors profile.activate --params '{\"profile\":\"night\"}' …
  mien fleet watch --for 60 …
  mien fleet rollout model.activate --params @activate.json --devices devices.txt \\
      --waves 1,10%,100% --success 95 --failure 5 …";

/// How the broker is reached.
#[derive(Debug, Clone, Args)]
pub(crate) struct Reach {
    /// mqtts://HOST[:PORT], or mqtt:// for one on this machine
    #[arg(long, value_name = "URL")]
    pub broker: String,
    /// Who signed the broker's certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Your certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// The key of your certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// First levels of every topic
    #[arg(long, default_value = mien_daemon::contract::ROOT)]
    pub root: String,
    /// Name of this client at the broker
    #[arg(long, default_value = "operator")]
    pub client: String,
    /// Prints JSON, a line an event
    #[arg(long)]
    pub json: bool,
}

/// The job.
#[derive(Debug, Clone, Args)]
pub(crate) struct Ordered {
    /// What to do, as in the contract
    pub kind: String,
    /// Parameters as JSON, or @FILE
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub params: String,
    /// gold, silver or bronze
    #[arg(long, default_value = "silver")]
    pub qos: String,
    /// 0 to 9, 9 goes first
    #[arg(long, default_value_t = 5)]
    pub priority: u8,
    /// Seconds for the whole
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u32>,
    /// Seconds within which it must begin
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub expires: u64,
    /// In which boot of the device it is meant (device.* need it)
    #[arg(long, value_name = "ID")]
    pub boot: Option<String>,
    /// Name of the signing key
    #[arg(long = "as", value_name = "KEY")]
    pub signer: String,
}

#[derive(Debug, Args)]
pub(crate) struct FleetSubmitArgs {
    /// A device, group/NAME or pool/NAME
    pub to: String,
    #[command(flatten)]
    pub job: Ordered,
    /// Id of the job [default: random]
    #[arg(long)]
    pub id: Option<String>,
    /// Does not wait for its end
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Only this device
    pub device: Option<String>,
    /// Seconds after which to end [default: never]
    #[arg(long = "for", value_name = "SECONDS")]
    pub seconds: Option<u64>,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct SteerArgs {
    pub device: String,
    /// Id of the job
    pub job: String,
    /// Only when the job has this version
    #[arg(long, value_name = "N")]
    pub expect_version: Option<u64>,
    /// Name of the signing key
    #[arg(long = "as", value_name = "KEY")]
    pub signer: String,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct TwinArgs {
    /// get, set or diff
    #[arg(value_parser = ["get", "set", "diff"])]
    pub what: String,
    pub device: String,
    /// The desired state as JSON (set, diff)
    pub file: Option<PathBuf>,
    /// Its version, higher than the last (set)
    #[arg(long, value_name = "N")]
    pub version: Option<u64>,
    /// Name of the signing key (set)
    #[arg(long = "as", value_name = "KEY")]
    pub signer: Option<String>,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct PoolArgs {
    /// Name of the pool
    pub pool: String,
    #[command(flatten)]
    pub job: Ordered,
    /// A file with the parameters of one job a line, in place of --params
    #[arg(long, value_name = "FILE")]
    pub jobs: Option<PathBuf>,
    /// Seconds without a sign after which a job is offered anew
    #[arg(long, default_value_t = 30)]
    pub lease: u64,
    #[command(flatten)]
    pub reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    #[command(flatten)]
    pub job: Ordered,
    /// Devices, one a line
    #[arg(long, value_name = "FILE")]
    pub devices: PathBuf,
    /// How far each wave reaches: numbers or shares of all
    #[arg(long, default_value = "1,10%,100%")]
    pub waves: String,
    /// Percent of a wave that must succeed before the next begins
    #[arg(long, default_value_t = 95)]
    pub success: u32,
    /// Percent of a wave above which failures end it all
    #[arg(long, default_value_t = 5)]
    pub failure: u32,
    /// Seconds after which a device that says nothing has failed
    #[arg(long, default_value_t = 600)]
    pub patience: u64,
    #[command(flatten)]
    pub reach: Reach,
}
