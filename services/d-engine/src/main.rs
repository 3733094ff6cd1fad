//! `d-engine`: a replicated key-value store, its load tool, and a tool to look at it.

use std::process::ExitCode;

fn main() -> ExitCode {
    d_engine::command_line::run(std::env::args_os())
}
