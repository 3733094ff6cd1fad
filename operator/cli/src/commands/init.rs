//! `storebench init`: writes a first file, to be run as it stands and then changed. Never writes over one that is there.

mod questions;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use service_kit::console;
use storebench_core::engine::{ENGINES, Engine, Protocol};
use storebench_core::input::load;
use storebench_crds::{Durability, DurationText, RatioText};

use super::explain::did_you_mean;
use crate::exit::Exit;

/// Below the help: what to type, what is written where, and what comes next.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  storebench init --engine redis --engine valkey   # writes run.yaml
  storebench init quick.yaml -e etcd -e rusd -w write --duration 1s --trials-max 6
  storebench init gate.yaml -e redis -e valkey --gate 95%   # can fail a pipeline
  storebench init most.yaml -e redis -e valkey -w write --connections 64 --p99-at-most 5ms   # the highest load within a target

Writes this one file, and never over one that is there. Next:
  storebench validate run.yaml --here    # what this machine lacks, and how to install it
  storebench run run.yaml --save runs    # results go to runs/first/latest/";

#[derive(Clone, clap::Args)]
pub(crate) struct Arguments {
    /// The file to write; `-` for standard output
    #[arg(default_value = "run.yaml")]
    file: PathBuf,
    /// A store to compare, as `storebench engines` names them; several times. The first is the baseline. Stores of etcd's API and d-engine, or of
    /// Redis's API; for others begin with a file of manifests/samples. Without it init asks, on a terminal
    #[arg(short, long = "engine", value_name = "ENGINE")]
    engines: Vec<String>,
    /// What to ask of them; several times
    #[arg(short, long = "workload", value_enum, default_values_t = [Asked::Write, Asked::Read])]
    workloads: Vec<Asked>,
    /// The run's name
    #[arg(long, default_value = "first")]
    name: String,
    /// What an acknowledged write survives: Fsync, or another class that all of the stores honour
    #[arg(long, default_value = "Fsync")]
    durability: String,
    /// Length of a value, bytes
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    value_bytes: u32,
    /// Connections, each with one client
    #[arg(long, default_value_t = 8)]
    connections: u32,
    /// How long each workload is measured in a trial
    #[arg(long, default_value = "5s")]
    duration: String,
    /// Look for the highest rate at which 99 of 100 requests are answered within this time, such as 5ms, and measure that
    #[arg(long, value_name = "TIME")]
    p99_at_most: Option<String>,
    /// Trials of every store at most; as many as it takes for intervals of ±2 %, six at least where so many are allowed
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=30))]
    trials_max: u32,
    /// Fail where throughput, or the highest rate, is less than this share of the baseline's, such as 95%
    #[arg(long, value_name = "SHARE")]
    gate: Option<String>,
}

/// What every key-value store can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Asked {
    /// Single keys are written
    Write,
    /// Single keys are read
    Read,
    /// Nine reads to a write
    Mixed,
}

/// The family of workloads that all stores speak.
#[derive(Clone, Copy)]
enum Family {
    Etcd,
    KeyValue,
    Redis,
}

impl Family {
    /// The family's field with its parameters.
    fn asked(self, asked: Asked, value_bytes: u32) -> String {
        let (field, what) = match (self, asked) {
            (Self::Etcd, Asked::Write) => ("etcd", "operation: Put"),
            (Self::Etcd, Asked::Read) => ("etcd", "operation: Range"),
            (Self::Etcd, Asked::Mixed) => ("etcd", "operation: Mixed, readPercent: 90"),
            (Self::KeyValue, Asked::Write) => ("keyValue", "operation: Put"),
            (Self::KeyValue, Asked::Read) => ("keyValue", "operation: Get"),
            (Self::KeyValue, Asked::Mixed) => ("keyValue", "operation: Mixed, readPercent: 90"),
            (Self::Redis, Asked::Write) => ("redis", "command: Set"),
            (Self::Redis, Asked::Read) => ("redis", "command: Get"),
            (Self::Redis, Asked::Mixed) => ("redis", "command: Mixed, readPercent: 90"),
        };
        format!("{field}: {{ {what}, valueBytes: {value_bytes} }}")
    }
}

pub(crate) fn init(arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.engines.is_empty() {
        let answered = questions::asked_of_user(arguments)?;
        let exit = init(&answered)?;
        questions::tell(&answered);
        return Ok(exit);
    }
    let file = arguments.file.display().to_string();
    check_options(arguments)?;
    let text = written(arguments)?;
    // What is written here can be run: a value that cannot is named as `run` would name it.
    load(&[(file.clone(), text.clone().into_bytes())], Path::new(""))?;
    if arguments.file == Path::new("-") {
        console::print(text)?;
        return Ok(Exit::Passed);
    }
    let created = File::options().write(true).create_new(true).open(&arguments.file);
    let mut created = created.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => is_there(&arguments.file),
        ErrorKind::NotFound => {
            let folder = arguments.file.parent().unwrap_or(Path::new("."));
            anyhow!("{}: there is no such folder: create it first", folder.display())
        }
        _ => anyhow!("{file}: cannot be written: {error}"),
    })?;
    created.write_all(text.as_bytes()).with_context(|| format!("{file}: cannot be written"))?;
    console::print(format!(
        "wrote {file}; next: storebench validate {file} --here, then storebench run {file} --save runs\n"
    ))?;
    Ok(Exit::Passed)
}

/// By the name of the option: whoever gave it has written no file yet.
fn check_options(arguments: &Arguments) -> anyhow::Result<()> {
    DurationText::new(&arguments.duration).context("--duration")?;
    arguments.p99_at_most.as_ref().map(DurationText::new).transpose().context("--p99-at-most")?;
    arguments.gate.as_ref().map(RatioText::new).transpose().context("--gate")?;
    Ok(())
}

fn check_gate(arguments: &Arguments, stores: usize) -> anyhow::Result<()> {
    if arguments.gate.is_some() && stores < 2 {
        bail!("--gate: compares a store with the first one: name another --engine");
    }
    Ok(())
}

fn is_there(file: &Path) -> anyhow::Error {
    anyhow!("{}: is there already: name another file, or remove it", file.display())
}

fn written(arguments: &Arguments) -> anyhow::Result<String> {
    let engines = arguments.engines.iter().map(|name| engine(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let family = family(&engines)?;
    check_gate(arguments, engines.len())?;
    let mut names: Vec<String> = Vec::new();
    for engine in &engines {
        let same = names.iter().filter(|name| name.starts_with(engine.name)).count();
        names.push(if same == 0 { engine.name.into() } else { format!("{}-{}", engine.name, same + 1) });
    }
    let mut text =
        format!("# {}. Every field is explained by `storebench explain benchmarkrun.spec`.\n", names.join(" against "));
    for (engine, name) in engines.iter().zip(&names) {
        let durability = durability(engine, &arguments.durability)?;
        write!(
            text,
            "apiVersion: storebench.dev/v1alpha1\nkind: StorageService\nmetadata: {{ name: {name} }}\nspec: {{ engine: {:?}, durability: {durability:?} }}\n---\n",
            engine.kind
        )?;
    }
    write!(
        text,
        "apiVersion: storebench.dev/v1alpha1\nkind: BenchmarkRun\nmetadata: {{ name: {} }}\nspec:\n  arms:\n",
        arguments.name
    )?;
    for (index, name) in names.iter().enumerate() {
        let baseline = if index == 0 { " baseline: true," } else { "" };
        writeln!(text, "  - {{ name: {name},{baseline} serviceRef: {{ name: {name} }} }}")?;
    }
    text.push_str("  workloads:\n");
    for (index, asked) in arguments.workloads.iter().enumerate() {
        if arguments.workloads[..index].contains(asked) {
            continue;
        }
        let (name, parameters) = (format!("{asked:?}").to_lowercase(), family.asked(*asked, arguments.value_bytes));
        writeln!(text, "  - name: {name}\n    {parameters}\n    load: {{ {} }}", load_of(arguments))?;
    }
    let most = arguments.trials_max;
    text.push_str("  # As many trials as it takes for intervals of ±2 %; 200 basis points are 2 %.\n");
    writeln!(text, "  trials: {{ min: {}, max: {most}, targetIntervalBasisPoints: 200 }}", most.min(6))?;
    if let Some(share) = &arguments.gate {
        text.push_str("  gates:\n");
        let metric = if arguments.p99_at_most.is_some() { "HighestRatePerSecond" } else { "ThroughputPerSecond" };
        for name in names.iter().skip(1) {
            writeln!(text, "  - {{ arm: {name}, metric: {metric}, ratioAtLeast: \"{share}\" }}")?;
        }
    }
    Ok(text)
}

/// How each workload is made. A search is an open loop, of users who know nothing of each other; it begins low, so that any store has a rate that
/// holds. Nothing lasts longer than what is measured.
fn load_of(arguments: &Arguments) -> String {
    let Arguments { connections, duration, p99_at_most, .. } = arguments;
    let at_most = |limit: &'static str| {
        let length = |text: &str| DurationText::new(text).map(|text| text.duration()).ok();
        if length(duration) < length(limit) { duration.as_str() } else { limit }
    };
    let plain = format!("connections: {connections}, duration: {duration}, warmUp: {}", at_most("1s"));
    match p99_at_most {
        None => plain,
        Some(target) => format!(
            "{plain}, mode: OpenLoop, arrivals: Poisson, rate: 1000,\n      highestRate: {{ percentile: P99, atMost: {target}, stepDuration: {} }}",
            at_most("2s")
        ),
    }
}

fn engine(name: &str) -> anyhow::Result<&'static Engine> {
    let is_it = |engine: &&Engine| {
        engine.name.eq_ignore_ascii_case(name) || format!("{:?}", engine.kind).eq_ignore_ascii_case(name)
    };
    ENGINES.iter().find(is_it).with_context(|| {
        let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
        let meant = did_you_mean(name, names.iter().copied());
        format!("--engine {name}: there is no such engine: {meant}use one of {}", names.join(", "))
    })
}

fn family(engines: &[&Engine]) -> anyhow::Result<Family> {
    let all = |protocols: &[Protocol]| engines.iter().all(|engine| protocols.contains(&engine.protocol));
    if all(&[Protocol::Etcd]) {
        return Ok(Family::Etcd);
    }
    if all(&[Protocol::Redis]) {
        return Ok(Family::Redis);
    }
    if all(&[Protocol::Etcd, Protocol::DEngine, Protocol::DEngineOriginal]) {
        return Ok(Family::KeyValue);
    }
    let of_protocol = |protocol| move |engine: &&&Engine| engine.protocol == protocol;
    for (protocol, sample) in [
        (Protocol::Sqlite, "the file manifests/samples/walsync-litestream.yaml"),
        (Protocol::BlockStream, "the file manifests/samples/block-node.yaml"),
        (Protocol::S3, "another engine: what keeps objects is a companion of others"),
    ] {
        if let Some(engine) = engines.iter().find(of_protocol(protocol)) {
            bail!(
                "{}: init writes files for stores of etcd's API and d-engine, or of Redis's, alone: begin with {sample}",
                engine.name
            );
        }
    }
    let spoken: Vec<String> =
        engines.iter().map(|engine| format!("{} speaks {}", engine.name, engine.protocol.name())).collect();
    bail!(
        "{}: no workload that init knows loads all of them: name stores of etcd's API and d-engine, or of Redis's, or begin with a file \
         of manifests/samples",
        spoken.join(", ")
    )
}

fn durability(engine: &Engine, written: &str) -> anyhow::Result<Durability> {
    let mut classes = engine.durability.iter().map(|honoured| honoured.class);
    classes.find(|class| format!("{class:?}").eq_ignore_ascii_case(written)).with_context(|| {
        let known: Vec<String> = engine.durability.iter().map(|honoured| format!("{:?}", honoured.class)).collect();
        format!("--durability {written}: {} honours {}: use one that all stores do", engine.name, known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// What was typed behind `init`.
    pub(super) fn typed(words: &[&str]) -> Arguments {
        Cli::try_parse_from([&["init"][..], words].concat()).unwrap().arguments
    }

    fn text(words: &[&str]) -> anyhow::Result<String> {
        written(&typed(words))
    }

    /// Every engine that is loaded by keys and values can be begun with, alone and beside one of its kind.
    #[test]
    fn what_is_written_can_be_run() {
        let mut refused = Vec::new();
        for engine in ENGINES {
            let beside = match engine.protocol {
                Protocol::Etcd | Protocol::DEngine | Protocol::DEngineOriginal => "etcd",
                Protocol::Redis => "Redis",
                Protocol::S3 | Protocol::BlockStream | Protocol::Sqlite => {
                    let said = text(&["-e", engine.name]).unwrap_err().to_string();
                    assert!(said.contains("begin with ") && !said.contains("no workload that init knows"), "{said}");
                    continue;
                }
            };
            let first = format!("{:?}", engine.durability[0].class);
            let gated = ["-e", beside, "-e", engine.name, "--gate", "95%", "-w"];
            let highest = [&gated[..], &["write", "--p99-at-most", "5ms", "--duration", "300ms"]].concat();
            for words in [vec!["-e", engine.name], [&gated[..], &["mixed"]].concat(), highest] {
                let mut words = words;
                words.extend(["--durability", first.as_str()]);
                let Ok(text) = text(&words) else {
                    refused.push(words.join(" "));
                    continue;
                };
                let input = load(&[("run.yaml".into(), text.clone().into_bytes())], Path::new(""));
                let input = input.unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert_eq!(input.runs.len(), 1);
            }
        }
        assert_eq!(refused, Vec::<String>::new());
    }

    #[test]
    fn a_search_asks_as_users_do_and_what_is_short_is_not_warmed_up_for_longer() {
        let of =
            |more: &[&str]| text(&[&["-e", "redis", "-e", "valkey", "-w", "write", "--gate", "95%"], more].concat());
        assert!(of(&[]).unwrap().contains("load: { connections: 8, duration: 5s, warmUp: 1s }\n"));
        let text = of(&["--p99-at-most", "5ms", "--duration", "300ms"]).unwrap();
        for part in [
            "duration: 300ms, warmUp: 300ms, mode: OpenLoop, arrivals: Poisson, rate: 1000,",
            "highestRate: { percentile: P99, atMost: 5ms, stepDuration: 300ms }",
            "metric: HighestRatePerSecond",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let said = format!("{:#}", init(&typed(&["-", "-e", "redis", "--p99-at-most", "soon"])).unwrap_err());
        assert!(said.starts_with("--p99-at-most: "), "{said}");
    }

    /// Whoever measures for the first time has met no basis point.
    #[test]
    fn basis_points_are_explained_where_they_stand() {
        let text = text(&["-e", "etcd"]).unwrap();
        let (before, _) = text.split_once("targetIntervalBasisPoints: 200 }").unwrap();
        let comment = before.lines().rev().nth(1).unwrap();
        assert!(comment.trim_start().starts_with('#') && comment.ends_with("200 basis points are 2 %."), "{comment}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = harness::folder();
        let file = folder.path().join("none/run.yaml");
        let said = init(&typed(&[file.to_str().unwrap(), "-e", "etcd"])).unwrap_err().to_string();
        assert!(said.ends_with("/none: there is no such folder: create it first"), "{said}");
    }

    #[test]
    fn what_cannot_be_compared_is_refused_with_the_remedy() {
        let error = |words: &[&str]| format!("{:#}", text(words).unwrap_err());
        assert!(error(&["-e", "postgres"]).contains("use one of"));
        assert!(error(&["-e", "etcd", "-e", "redis"]).contains("no workload that init knows loads all of them"));
        assert!(error(&["-e", "etcd", "--gate", "95%"]).contains("name another --engine"));
        assert!(error(&["-e", "etcd", "--durability", "Hope"]).contains("etcd honours "));
    }
}
