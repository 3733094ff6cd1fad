//! Runs the simulator: many seeds, or one with a trace, with or without a planted error.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use replog::Bug;
use replog::sim::{Options, Report, quiet_panics, run};

const USAGE: &str = "\
replog-sim --seed N              one seed, with everything that happens
replog-sim --seeds COUNT         so many seeds, from 0 or from --from N
  --bug NAME                     with this error planted (--bugs lists them)
  --bugs                         every error in turn: the first seed that shows it, of --seeds COUNT
  --harm-only                    without looking at disks: errors are seen when they have done harm
  --nodes N                      with so many members at the beginning
  --jobs N                       on so many threads (2)
";

#[derive(Debug, Default)]
struct Arguments {
    seed: Option<u64>,
    from: u64,
    seeds: u64,
    jobs: u64,
    bugs: bool,
    options: Options,
}

fn parse() -> Result<Arguments, String> {
    let mut arguments = Arguments { seeds: 1000, jobs: 2, ..Arguments::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bugs" => arguments.bugs = true,
            "--harm-only" => arguments.options.harm_only = true,
            _ => {}
        }
        if matches!(word.as_str(), "--bugs" | "--harm-only") {
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} {value}: not a number"));
        match word.as_str() {
            "--seed" => arguments.seed = Some(number()?),
            "--from" => arguments.from = number()?,
            "--seeds" => arguments.seeds = number()?,
            "--jobs" => arguments.jobs = number()?.max(1),
            "--nodes" => arguments.options.nodes = number()?,
            "--bug" => {
                let bug = Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == value);
                arguments.options.bug = Some(bug.ok_or_else(|| format!("--bug {value}: one of {:?}", Bug::ALL))?);
            }
            _ => return Err(format!("{word} is not known")),
        }
    }
    Ok(arguments)
}

/// The first seed that breaks a promise, with what became of it; and how many events happened in how many seeds.
fn search(arguments: &Arguments, options: Options) -> (Option<(u64, Report)>, u64, u64, u64) {
    let next = AtomicU64::new(arguments.from);
    let (end, events, seeds, slowest) =
        (AtomicU64::new(arguments.from + arguments.seeds), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let found: Mutex<Option<(u64, Report)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end.load(Ordering::Relaxed) {
                        break;
                    }
                    let report = run(seed, options);
                    events.fetch_add(report.stats.events, Ordering::Relaxed);
                    slowest.fetch_max(report.stats.recovery_micros, Ordering::Relaxed);
                    seeds.fetch_add(1, Ordering::Relaxed);
                    if report.violation.is_some() {
                        end.fetch_min(seed, Ordering::Relaxed);
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        if found.as_ref().is_none_or(|(other, _)| seed < *other) {
                            *found = Some((seed, report));
                        }
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    (found, events.into_inner(), seeds.into_inner(), slowest.into_inner())
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    quiet_panics();
    if let Some(seed) = arguments.seed {
        let report = run(seed, Options { trace: true, ..arguments.options });
        println!("{:#?}", report.stats);
        return if report.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    if arguments.bugs {
        println!("| planted error | seeds until seen | promise that it breaks |\n| --- | --- | --- |");
        let mut is_blind = false;
        for bug in Bug::ALL {
            let (found, ..) = search(&arguments, Options { bug: Some(bug), ..arguments.options });
            let violation = found.as_ref().and_then(|(seed, report)| Some((seed, report.violation.as_ref()?)));
            match violation {
                Some((seed, violation)) => {
                    println!("| `{bug:?}` | {} | {} |", seed - arguments.from + 1, violation.promise);
                }
                None => {
                    is_blind = true;
                    println!("| `{bug:?}` | NOT SEEN in {} | |", arguments.seeds);
                }
            }
        }
        return if is_blind { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let start = Instant::now();
    let (found, events, seeds, slowest) = search(&arguments, arguments.options);
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {events} events, {seconds:.1} s; slowest recovery {} ms of simulated time",
        slowest / 1000
    );
    match found.as_ref().and_then(|(seed, report)| Some((seed, report.violation.as_ref()?))) {
        Some((seed, violation)) => {
            println!("seed {seed} breaks a promise: {}: {}", violation.promise, violation.detail);
            println!("see it happen: cargo run -p replog --features simulator -- --seed {seed}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}
