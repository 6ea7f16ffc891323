//! mien: so far only the worker's role.
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(role) if role == "worker" => mien_worker::main(arguments),
        _ => ExitCode::from(2),
    }
}
