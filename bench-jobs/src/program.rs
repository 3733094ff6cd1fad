//! What `bench-job` and `store-meter` have in common as programs: arguments in, one line of error and an exit code out.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;

use crate::failure::short_line;

/// Parses the arguments, the first of which is the program's name as it appears in help, and runs. An error is one line that
/// starts with `name`.
pub(crate) fn main_with<A: Parser>(
    name: &str,
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    run: impl FnOnce(A) -> anyhow::Result<()>,
) -> ExitCode {
    let arguments = match A::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers, everything else is a mistake; clap knows which and where to print it.
            let _ = error.print();
            return if error.exit_code() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{name}: {}", short_line(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}
