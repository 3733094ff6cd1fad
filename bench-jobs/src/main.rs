//! `bench-job`: loads one storage service as a job file says. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench_jobs::main_with(std::env::args_os())
}
