//! `store-meter`: stands beside a store and measures it. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench_jobs::sidecar::store_meter::main_with(std::env::args_os())
}
