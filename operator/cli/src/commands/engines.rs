//! `storebench engines`: what there is, what is installed here, and the command that installs what is not.

use serde_json::{Value, json};
use service_kit::console;
use storebench_core::engine::{ENGINES, Engine};

use crate::embedded::peers;
use crate::exit::Exit;
use crate::output::{known_width, wrapped};

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table for people.
    Text,
    /// Everything that the table of engines says, for programs.
    Json,
}

pub(crate) fn engines(format: Format) -> anyhow::Result<Exit> {
    let text = match format {
        Format::Text => table(known_width()),
        Format::Json => {
            let engines: Vec<Value> = ENGINES.iter().map(described).collect();
            format!("{}\n", serde_json::to_string_pretty(&engines)?)
        }
    };
    console::print(text)?;
    Ok(Exit::Passed)
}

fn table(columns: Option<usize>) -> String {
    let longest = |words: &mut dyn Iterator<Item = &str>| words.map(str::len).max().unwrap_or_default();
    let names = longest(&mut ENGINES.iter().map(|engine| engine.name));
    let protocols = longest(&mut ENGINES.iter().map(|engine| engine.protocol.name()));
    let row = |name: &str, protocol: &str, version: &str, place: &str, may_break: bool| {
        let head = format!("{name:<names$} {protocol:<protocols$} {version:<10}");
        beside_or_below(&head, place, may_break, columns)
    };
    let mut table = row("ENGINE", "PROTOCOL", "VERSION", "WHERE, OR HOW TO INSTALL", true);
    for engine in ENGINES {
        let (name, protocol) = (engine.name, engine.protocol.name());
        let installed = peers::installed(engine);
        if installed.is_empty() {
            table += &row(name, protocol, "-", &peers::install(engine), !peers::is_installed_by_command(engine));
        }
        for binary in installed {
            table += &row(name, protocol, &binary.version, &binary.path.display().to_string(), false);
        }
    }
    table
}

/// What does not fit beside its engine stands below it. Paths and commands stay whole, so that they can be copied.
fn beside_or_below(head: &str, place: &str, may_break: bool, columns: Option<usize>) -> String {
    match columns.filter(|columns| head.chars().count() + 1 + place.chars().count() > *columns) {
        None => format!("{head} {place}\n"),
        Some(columns) if may_break => format!("{}\n{}", head.trim_end(), wrapped("    ", "    ", place, columns)),
        Some(_) => format!("{}\n    {place}\n", head.trim_end()),
    }
}

fn described(engine: &'static Engine) -> Value {
    let durability =
        engine.durability.iter().map(|honoured| (format!("{:?}", honoured.class), json!(honoured.setting)));
    let ports = engine.ports.iter().map(|port| (port.name.to_owned(), json!(port.number)));
    let installed = peers::installed(engine);
    let installed = installed.into_iter().map(|binary| json!({ "version": binary.version, "path": binary.path }));
    json!({
        "engine": engine.kind,
        "name": engine.name,
        "description": engine.description(),
        "protocol": engine.protocol.name(),
        "version": engine.default_version,
        "image": format!("{}:{}", engine.image, engine.default_version),
        "executables": engine.executables,
        "replicas": engine.replicas,
        "durability": durability.collect::<serde_json::Map<_, _>>(),
        "ports": ports.collect::<serde_json::Map<_, _>>(),
        "metricsPath": engine.metrics.map(|metrics| metrics.path),
        "allocator": engine.allocator.words(),
        "reservedFlags": engine.reserved_flags,
        "install": engine.install(),
        "installed": installed.collect::<Vec<_>>(),
    })
}
