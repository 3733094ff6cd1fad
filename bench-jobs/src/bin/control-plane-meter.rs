//! `control-plane-meter`: see [`bench_jobs::sidecar::control_plane::meter`].

use std::process::ExitCode;

fn main() -> ExitCode {
    bench_jobs::sidecar::control_plane::meter::main_with(std::env::args_os())
}
