//! `storebench`: compare storage services honestly.
//!
//! This file holds the command line and the exit codes; each command is a module of [`commands`], and [`embedded`] is the
//! driver that realises plans as child processes.

mod commands;
mod destination;
mod embedded;
mod exit;
mod find;
mod folder_name;
mod git;
mod output;
mod resumable;
mod saved;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use service_kit::console;

use commands::across::{Form, Terms};
use commands::cluster::Place;
use exit::Exit;
use output::Output;
use storebench_core::input::InputErrors;
use storebench_crds::document::nearest;
use storebench_crds::line::one_line;

/// musl's allocator has one lock for all threads, and a load has many of them.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Compare storage services honestly: interleaved trials, intervals, equal durability, a verdict.
#[derive(Parser)]
#[command(name = "storebench", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "Exit codes: 0 passed, 1 usage or internal error, 2 regressed, 3 inconclusive or nothing to compare with, \
                          4 invalid, 130 interrupted.\n\nStart here: storebench engines; then, in a checkout: storebench run manifests/samples/redis-valkey.yaml";

#[derive(Subcommand)]
enum Command {
    /// Run comparisons on this machine, without a cluster, and report
    Run(RunArguments),
    /// Check files without running anything, and tell every mistake
    Validate {
        /// YAML files, as for `kubectl apply`; `-` is standard input. Of a directory, each of its YAML files by itself, together with those
        /// that hold no BenchmarkRun
        #[arg(value_name = "FILE|DIRECTORY", required = true)]
        files: Vec<PathBuf>,
        /// Refuse, too, what cannot be run on this machine as it is: a store or version that is not installed, what an embedded run cannot
        /// honour. Without it that is told, and is no mistake. Endpoints of external stores are dialled with it alone
        #[arg(long)]
        here: bool,
        /// Exit with 1 where there is a line that begins with `warning:`, too: of gates that no run could miss or meet, or that a run may leave
        /// undecided, of arms that will not be ranked, of too few trials. Without it these are told, and are no mistake
        #[arg(long)]
        strict: bool,
    },
    /// Render a report again, judging its raw trials anew; the exit code is the verdict. Of two, how much of a difference
    /// between stores reaches who uses Kubernetes on them
    #[command(after_help = commands::report::AFTER_HELP)]
    Report {
        /// A report.json or what `-o json` printed (`-`: standard input); the folder of one run, or a directory of `run --save`, of which the
        /// newest of each run is taken; the same in Git as git:REVISION[:PATH], such as git:main:runs; `benchmarkrun/NAME` for a run in a
        /// cluster, or `benchmarksuite/NAME` for all runs of a suite there in one table, both Invalid until they are complete. Two files: one
        /// of the stores themselves (etcd workloads), one of Kubernetes on them
        #[arg(value_name = "SOURCE", required = true, num_args = 1..=2)]
        sources: Vec<PathBuf>,
        #[command(flatten)]
        place: Place,
        /// What to print
        #[arg(short, long, visible_alias = "format", value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Compare a saved run with an earlier one: what differs between both, and how the figures of each arm moved. Ratios to an unchanged
    /// baseline are compared where both have one. The exit code is 2 where it became slower beyond noise
    Compare {
        /// The earlier run: a report.json, a folder of one run, or a directory of --save, of which the newest of each run is taken; in Git as
        /// git:REVISION[:PATH], such as git:main:runs
        before: PathBuf,
        /// The later run
        after: PathBuf,
        #[command(flatten)]
        terms: Terms,
        /// What to print
        #[arg(short, long, value_enum, default_value_t = Form::Text)]
        output: Form,
    },
    /// Follow all runs in a directory of --save: since when which arm is slower or faster, and what else changed then. The exit code is 2
    /// where one of the last ten runs began a worse level
    History {
        /// A directory of --save, or the folder of one run in it; in Git as git:REVISION[:PATH]
        directory: PathBuf,
        /// Take runs of other machines than that of the newest, too
        #[arg(long)]
        allow_different_machine: bool,
        /// What to print
        #[arg(short, long, value_enum, default_value_t = Form::Text)]
        output: Form,
    },
    /// Copy saved runs to where they outlive this machine: an object store, a branch of a Git repository, or a receiver of metrics. What is
    /// there already is not written over: exported twice is exported once
    Export(commands::export::Arguments),
    /// Wait until a BenchmarkRun in a cluster is complete; the exit code is its verdict
    Wait {
        /// The run, as `benchmarkrun/NAME` or `NAME`
        run: String,
        #[command(flatten)]
        place: Place,
        /// Give up after this long, such as 30m
        #[arg(long, default_value = "1h")]
        timeout: String,
    },
    /// Print the CustomResourceDefinitions
    Crds,
    /// Print a JSON Schema: of a kind, for editors, or of `result`, which is what -o json and report.json hold
    Schema {
        /// A kind, such as BenchmarkRun, or `result`
        #[arg(value_name = "KIND|result")]
        of: String,
    },
    /// Explain a field, as `kubectl explain` does without a cluster: storebench explain benchmarkrun.spec.trials
    #[command(after_help = commands::explain::AFTER_HELP)]
    Explain {
        /// A kind, and behind it fields with dots between them; lists add nothing
        field: String,
    },
    /// Write a first file: the stores to compare, and what to ask of them
    #[command(after_help = commands::init::AFTER_HELP)]
    Init(commands::init::Arguments),
    /// List engines: what is installed here, and the command that installs what is not
    Engines {
        /// What to print
        #[arg(short, long, value_enum, default_value_t = commands::engines::Format::Text)]
        output: commands::engines::Format,
    },
    /// Print what completes this program's words in a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual pages, that of the program first: storebench man | man -l -; or write them all, each as a file
    Man {
        /// Where to write storebench.1, storebench-run.1 and so on, such as ~/.local/share/man/man1
        directory: Option<PathBuf>,
    },
    /// Load one arm as a job file says (what trials run; rarely useful by hand)
    #[command(disable_help_flag = true)]
    BenchJob {
        /// Arguments of bench-job; try --help
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
}

/// What storebench calls itself with, and no user does: apart from the commands, so that neither a shell nor "did you mean" offers it.
#[derive(Parser)]
enum Helper {
    /// Die with the parent: replaces itself with a program that is killed when storebench is
    ExecGuarded {
        /// The process that must be the parent
        #[arg(long)]
        parent: i32,
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Outlive the parent: removes a directory when standard input ends
    RemoveWhenOrphaned {
        /// The directory
        directory: PathBuf,
    },
}

#[derive(clap::Args)]
struct RunArguments {
    /// YAML files with StorageServices and BenchmarkRuns, as for `kubectl apply`; `-` is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// What to print when done
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Keep each run in DIRECTORY/<run>/<time>-<verdict>/: report.html, report.md, report.json and run.yaml. Trials are kept as they
    /// end; <run>/latest leads to the newest
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "resume")]
    save: Option<PathBuf>,
    /// As --save, but go on with runs in DIRECTORY that were interrupted, from the trial at which they were; and with those that other
    /// programs disturbed too often, of which what did not count is repeated. What else came to its end is shown and not repeated
    #[arg(long, value_name = "DIRECTORY")]
    resume: Option<PathBuf>,
    /// Where stores keep their data while they run; must be on the disk you want measured. Without it: `storebench` in $XDG_CACHE_HOME, or in
    /// ~/.cache
    #[arg(long, value_name = "DIRECTORY", env = "STOREBENCH_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// How long a run waits in all, at most, until other programs leave the machine alone: before its first trial, and after
    /// one that they disturbed, which then uses up no retry. Goes on as soon as it is quiet; at the limit it measures all
    /// the same. 0s: does not wait
    #[arg(long, value_name = "DURATION", env = "STOREBENCH_WAIT_FOR_QUIET", default_value = "5m")]
    wait_for_quiet: String,
    /// Compare each run with the saved one of its name there, as `compare` does: a report.json, a folder of one run, or a directory of --save;
    /// or the newest of its name at or below PATH in a revision of the Git repository around the current directory (./git:… is a folder)
    #[arg(long, value_name = "FILE|DIRECTORY|git:REVISION[:PATH]")]
    baseline: Option<PathBuf>,
    #[command(flatten)]
    terms: Terms,
    /// Fail where another storebench measures on this machine, instead of waiting until it is done
    #[arg(long)]
    no_wait: bool,
    /// No progress on standard error
    #[arg(short, long)]
    quiet: bool,
}

/// What users type to call a program of this name: kubectl runs `kubectl-storebench` for `kubectl storebench`.
fn typed(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("kubectl-").map_or_else(|| name.to_string(), |plugin| format!("kubectl {plugin}"))
}

fn parse() -> Result<Cli, clap::Error> {
    let program = std::env::args_os().next().map_or("storebench".into(), |program| typed(Path::new(&program)));
    // Examples are typed as the program is.
    let as_typed = |text: &str| text.replace("storebench ", &format!("{program} "));
    let mut command = Cli::command().after_help(as_typed(AFTER_HELP)).mut_subcommands(|command| {
        let examples = command.get_after_help().map(|examples| as_typed(&examples.to_string()));
        match examples {
            Some(examples) => command.after_help(examples),
            None => command,
        }
    });
    command = command.bin_name(program);
    let matches = command.try_get_matches_from_mut(std::env::args_os()).map_err(|error| suggest(error, &command))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Of short words clap finds none that is similar.
fn suggest(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    let names = command.get_subcommands().map(clap::Command::get_name);
    if let (Some(ContextValue::String(written)), None) =
        (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::SuggestedSubcommand))
        && let Some(meant) = nearest(written, names)
    {
        let meant = ContextValue::Strings(vec![meant.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
    error
}

/// The helper that was called, if one was.
fn helper() -> Option<Helper> {
    let first = std::env::args_os().nth(1)?;
    let command = Helper::command();
    command.get_subcommands().any(|helper| first == helper.get_name()).then(Helper::parse)
}

fn main() -> ExitCode {
    match helper() {
        Some(Helper::ExecGuarded { parent, command }) => return end(embedded::guard::exec_guarded(parent, &command)),
        Some(Helper::RemoveWhenOrphaned { directory }) => {
            return end(embedded::guard::remove_when_orphaned(&directory));
        }
        None => {}
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are not errors; anything else is a usage error, whose code here is 1, not clap's 2.
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Passed };
            let _ = error.print();
            return code.into();
        }
    };
    let result = match cli.command {
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Validate { files, here, strict } => commands::validate::validate(&files, here, strict),
        Command::Report { sources, place, output } => commands::report::report(&sources, &place, output),
        Command::Compare { before, after, terms, output } => commands::across::compare(&before, &after, &terms, output),
        Command::History { directory, allow_different_machine, output } => {
            commands::across::history(&directory, allow_different_machine, output)
        }
        Command::Export(arguments) => commands::export::export(&arguments),
        Command::Wait { run, place, timeout } => commands::wait::wait(&run, &place, &timeout),
        Command::Crds => commands::crds::crds(),
        Command::Schema { of } => commands::schema::schema(&of),
        Command::Explain { field } => commands::explain::explain(&field),
        Command::Init(arguments) => commands::init::init(&arguments),
        Command::Engines { output } => commands::engines::engines(output),
        Command::Completion { shell } => commands::words::completion(&mut Cli::command(), shell),
        Command::Man { directory } => commands::words::man(Cli::command(), directory.as_deref()),
        Command::BenchJob { arguments } => {
            return bench_jobs::main_with(std::iter::once("storebench bench-job".into()).chain(arguments));
        }
    };
    end(result)
}

/// Says what went wrong, each mistake in a line.
fn end(result: anyhow::Result<Exit>) -> ExitCode {
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            match error.downcast_ref::<InputErrors>() {
                Some(errors) => errors
                    .iter()
                    .for_each(|error| console::tell(format_args!("storebench: {}", one_line(&error.to_string())))),
                None => console::tell(format_args!("storebench: {}", one_line(&format!("{error:#}")))),
            }
            Exit::of_error(&error).into()
        }
    }
}
