//! Finds the executables of stores: in the peers directory that `make peers` fills, then beside storebench itself, where its own
//! stores are built, then on PATH.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use storebench_core::engine::Engine;
use storebench_core::record::Unavailable;
use storebench_core::validate::ValidatedService;

/// An installed executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) path: PathBuf,
    pub(crate) version: String,
}

/// Every version of an engine that is installed here.
pub(crate) fn installed(engine: &Engine) -> Vec<Binary> {
    let mut found = Vec::new();
    let versions =
        directory().map(|directory| directory.join(engine.name)).and_then(|path| std::fs::read_dir(path).ok());
    for entry in versions.into_iter().flatten().flatten() {
        let path = entry.path().join(engine.binary);
        if let Some(version) = entry.file_name().to_str()
            && path.is_file()
        {
            found.push(Binary { version: version.into(), path });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.extend(elsewhere(engine));
    found
}

/// The executable for a service, or why there is none. A version that the user named must match; otherwise the version
/// that storebench was tested with is preferred, and any other will do.
pub(crate) fn find(service: &ValidatedService) -> Result<Binary, Unavailable> {
    let engine = service.engine;
    let mut installed = installed(engine);
    let exact = installed.iter().position(|binary| binary.version == service.version);
    match exact.or(if service.version_is_pinned || installed.is_empty() { None } else { Some(0) }) {
        Some(index) => Ok(installed.swap_remove(index)),
        None => {
            let others: Vec<String> = installed.into_iter().map(|binary| binary.version).collect();
            let others = if others.is_empty() { String::new() } else { format!(" (there is {})", others.join(", ")) };
            Err(Unavailable {
                reason: format!("{} {} is not installed here{others}", engine.name, service.version),
                install: engine.install.into(),
            })
        }
    }
}

/// Where `peers/fetch` installs.
fn directory() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("STOREBENCH_PEERS").or_else(|| {
        let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")))?;
        Some(data.join("storebench/peers"))
    })
}

fn elsewhere(engine: &Engine) -> Option<Binary> {
    let own = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.into_iter().chain(std::env::split_paths(&path));
    let path = folders.map(|folder| folder.join(engine.binary)).find(|path| path.is_file())?;
    let version = reported_version(engine, &path)?;
    Some(Binary { path, version })
}

/// The version as the executable itself prints it.
pub(crate) fn reported_version(engine: &Engine, path: &Path) -> Option<String> {
    let output = Command::new(path).arg(engine.version_probe.argument).stdin(Stdio::null()).output().ok()?;
    engine.version_probe.read(&String::from_utf8_lossy(&output.stdout)).map(Into::into)
}
