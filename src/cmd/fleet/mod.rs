//! `mien fleet`: orders jobs over a broker and watches what becomes of them.

mod link;
mod look;
mod order;
mod many;

use mien_daemon::contract::Do;

use super::error::Result;
use super::fleet_args::FleetCommand;

pub(crate) fn run(command: &FleetCommand) -> Result<()> {
    match command {
        FleetCommand::Submit(args) => order::submit(args),
        FleetCommand::Watch(args) => look::watch(args),
        FleetCommand::Cancel(args) => order::steer(args, Do::Cancel),
        FleetCommand::Pause(args) => order::steer(args, Do::Pause),
        FleetCommand::Resume(args) => order::steer(args, Do::Resume),
        FleetCommand::Twin(args) => look::twin(args),
        FleetCommand::Pool(args) => many::pool(args),
        FleetCommand::Rollout(args) => many::rollout(args),
        FleetCommand::Probe(reach) => look::probe(reach),
    }
}
