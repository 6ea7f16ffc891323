//! One file per subcommand; composition, words to the user, and no logic of the pipeline.

pub(crate) mod error;
mod model_args;
mod process_args;
mod run_args;
mod source_args;
mod job_args;
mod fleet_args;
pub(crate) mod args;
mod out;
mod inputs;
mod recipe;
mod record;
mod deeds;
mod desk;
mod clips;
mod judge;
mod figures;
mod fetch;
mod audit;
mod bench;
mod check;
mod consent;
mod daemon;
mod demo_clip;
mod demo;
mod detect;
mod pack;
mod measure;
mod model;
mod key;
mod process;
mod camera;
mod live;
mod run;
mod source;
mod verify;
mod work;
mod job;
mod fleet;

use args::{Cli, Command};
use clap::CommandFactory as _;
use error::Result;

/// Runs a parsed command line.
pub(crate) fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Process(args) => process::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Detect(args) => detect::run(args),
        Command::Source(command) => source::run(command),
        Command::Consent(command) => consent::run(command),
        Command::Audit(command) => audit::run(command),
        Command::Model(command) => model::run(command),
        Command::Key(command) => key::run(command),
        Command::Job(command) => job::run(command),
        Command::Fleet(command) => fleet::run(command),
        Command::Bench(args) => bench::run(args),
        Command::Check(args) => check::run(args),
        Command::Camera(command) => camera::run(command),
        Command::Run(args) => run::run(args),
        Command::Status(args) => daemon::status(args),
        Command::Health(args) => daemon::health(args),
        Command::Reload(args) => daemon::reload(args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "mien", &mut script);
            out::bytes(&script)
        }
        // The worker has its own entry and never comes here: main.rs.
        Command::Worker => Ok(()),
    }
}

/// Says what went wrong, once, on standard error.
pub(crate) fn say(error: &error::Error) {
    out::note(&format!("mien: {}", error.chain()));
}
