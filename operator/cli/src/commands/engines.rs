//! `storebench engines`: what there is, what is installed here, and the command that installs what is not.

use std::fmt::Write as _;

use serde_json::{Value, json};
use service_kit::console;
use storebench_core::engine::{ENGINES, Engine};

use crate::embedded::peers;
use crate::exit::Exit;

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
        Format::Text => table()?,
        Format::Json => {
            let engines: Vec<Value> = ENGINES.iter().map(described).collect();
            format!("{}\n", serde_json::to_string_pretty(&engines)?)
        }
    };
    console::print(text)?;
    Ok(Exit::Passed)
}

fn table() -> anyhow::Result<String> {
    let longest = |words: &mut dyn Iterator<Item = &str>| words.map(str::len).max().unwrap_or_default();
    let names = longest(&mut ENGINES.iter().map(|engine| engine.name));
    let protocols = longest(&mut ENGINES.iter().map(|engine| engine.protocol.name()));
    let mut table =
        format!("{:<names$} {:<protocols$} {:<10} WHERE, OR HOW TO INSTALL\n", "ENGINE", "PROTOCOL", "VERSION");
    for engine in ENGINES {
        let Engine { name, protocol, .. } = engine;
        let installed = peers::installed(engine);
        if installed.is_empty() {
            writeln!(table, "{name:<names$} {protocol:<protocols$} {:<10} {}", "-", peers::install(engine))?;
        }
        for binary in installed {
            writeln!(table, "{name:<names$} {protocol:<protocols$} {:<10} {}", binary.version, binary.path.display())?;
        }
    }
    Ok(table)
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
