//! Parses arguments, picks the role, maps an error's kind to the exit code.

mod cmd;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // The worker's role comes before anything else: it parses no command line of a user.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|role| role == "worker") {
        return mien_worker::main(arguments);
    }
    // Where the kernel can't, `mien check` says so.
    mien_vault::memfd::never_dump();
    match cmd::run(&cmd::args::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cmd::say(&error);
            ExitCode::from(error.kind().exit_code())
        }
    }
}
