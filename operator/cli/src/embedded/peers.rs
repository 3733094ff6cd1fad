//! Finds the executables of stores: in the peers directory that `make peers` fills, then beside storebench itself, where its own
//! stores are built, then on PATH.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use storebench_core::control_plane::{self, ValidatedControlPlane};
use storebench_core::engine::{Engine, STORE};
use storebench_core::record::Unavailable;
use storebench_core::validate::{ValidatedArm, ValidatedService};

/// An installed executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) path: PathBuf,
    pub(crate) version: String,
}

impl Binary {
    /// The folder of the engine's executables; one may be in a folder of its own below that.
    pub(crate) fn folder(&self, engine: &Engine) -> &Path {
        let below = Path::new(engine.binary()).components().count();
        self.path.ancestors().nth(below).unwrap_or(&self.path)
    }
}

/// Every version of an engine that is installed here.
pub(crate) fn installed(engine: &Engine) -> Vec<Binary> {
    let mut found = Vec::new();
    let versions =
        directory().map(|directory| directory.join(engine.name)).and_then(|path| std::fs::read_dir(path).ok());
    for entry in versions.into_iter().flatten().flatten() {
        let path = entry.path().join(engine.binary());
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
fn find(service: &ValidatedService) -> Result<Binary, Unavailable> {
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
                install: how_to_install(&engine.install(), engine.binary(), engine.name, &service.version),
            })
        }
    }
}

/// Everything that one arm runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binaries {
    pub(crate) store: StoreBinaries,
    /// Absent where the store itself is loaded.
    pub(crate) control_plane: Option<ControlPlaneBinaries>,
}

/// The executables of a store and its companions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreBinaries {
    pub(crate) store: Binary,
    /// By role.
    pub(crate) companions: Vec<(&'static str, Binary)>,
}

impl StoreBinaries {
    /// The executable of a role.
    pub(crate) fn of(&self, role: &str) -> Option<&Binary> {
        let companion = self.companions.iter().find(|(name, _)| *name == role).map(|(_, binary)| binary);
        companion.or_else(|| (role == STORE).then_some(&self.store))
    }
}

/// The executables of a service and its companions, or why one is missing.
pub(super) fn find_store(service: &ValidatedService) -> Result<StoreBinaries, Unavailable> {
    let companions = service.companions.iter().map(|(role, companion)| Ok((*role, find(companion)?)));
    Ok(StoreBinaries { store: find(service)?, companions: companions.collect::<Result<_, _>>()? })
}

/// The executables of a control plane, all of one version of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlPlaneBinaries {
    paths: Vec<PathBuf>,
    pub(crate) version: String,
}

impl ControlPlaneBinaries {
    /// The executable of this file name.
    pub(crate) fn path(&self, name: &str) -> Option<&Path> {
        self.paths.iter().find(|path| path.ends_with(name)).map(PathBuf::as_path)
    }
}

/// The executables for an arm, or why one is missing.
pub(crate) fn find_all(arm: &ValidatedArm) -> Result<Binaries, Unavailable> {
    let service = arm.service().ok_or_else(|| Unavailable {
        reason: "it is a cluster given by a Secret, which an embedded run has not".into(),
        install: "kubectl apply".into(),
    })?;
    let store = find_store(service)?;
    let control_plane = arm.control_plane().map(find_control_plane).transpose()?;
    Ok(Binaries { store, control_plane })
}

/// In the peers directory, in the version asked for; then on PATH, which has one version.
fn find_control_plane(wanted: &ValidatedControlPlane) -> Result<ControlPlaneBinaries, Unavailable> {
    let version = &wanted.kubernetes_version;
    let folder = directory().map(|directory| directory.join(control_plane::FOLDER).join(version));
    let in_folder = |name: &str| folder.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file());
    let found: Vec<PathBuf> = control_plane::BINARIES.iter().filter_map(|name| in_folder(name)).collect();
    if found.len() == control_plane::BINARIES.len() {
        return Ok(ControlPlaneBinaries { paths: found, version: version.clone() });
    }
    let install = || how_to_install(control_plane::INSTALL, control_plane::BINARIES[0], control_plane::FOLDER, version);
    let unavailable = |reason: String| Unavailable { reason, install: install() };
    let mut paths = Vec::new();
    for name in control_plane::BINARIES {
        let path = path_of(name);
        paths.push(path.ok_or_else(|| unavailable(format!("{name} of Kubernetes {version} is not installed here")))?);
    }
    match kubernetes_version(&paths[0]) {
        Some(found) if found == *version || !wanted.version_is_pinned => {
            Ok(ControlPlaneBinaries { paths, version: found })
        }
        found => {
            let found = found.unwrap_or_else(|| "of no known version".into());
            Err(unavailable(format!("Kubernetes {version} is not installed here (on PATH is {found})")))
        }
    }
}

/// As `kube-apiserver --version` prints it: `Kubernetes v1.34.4`.
fn kubernetes_version(api_server: &Path) -> Option<String> {
    let output = Command::new(api_server).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().strip_prefix("Kubernetes v").map(str::to_owned)
}

/// Beside storebench itself, or on PATH.
fn path_of(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = own.into_iter().chain(std::env::split_paths(&path));
    folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()))
}

/// What installs an executable from where the user is: the command of the checkout, by its path where that is needed, or where to put it
/// by hand.
fn how_to_install(command: &str, binary: &str, folder: &str, version: &str) -> String {
    let is_of_checkout = command.starts_with("peers/fetch ") || command.starts_with("cargo build ");
    if !is_of_checkout || is_checkout(Path::new(".")) {
        return command.into();
    }
    let own = std::env::current_exe().ok();
    let above = std::env::current_dir().ok();
    let mut folders = above.iter().chain(&own).flat_map(|path| path.ancestors());
    match (folders.find(|folder| is_checkout(folder)), command.strip_prefix("peers/fetch ")) {
        (Some(root), Some(peer)) => format!("{} {peer}", root.join("peers/fetch").display()),
        (Some(root), None) => format!("{command} --manifest-path {}", root.join("Cargo.toml").display()),
        (None, _) => {
            let place = directory().map_or_else(String::new, |directory| {
                format!(", or into {}", directory.join(folder).join(version).display())
            });
            format!("put {binary} {version} on PATH{place}")
        }
    }
}

fn is_checkout(folder: &Path) -> bool {
    folder.join("peers/fetch").is_file() && folder.join("operator/cli/Cargo.toml").is_file()
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
    let path = path_of(engine.binary())?;
    let version = reported_version(engine, &path)?;
    Some(Binary { path, version })
}

/// The version as the executable itself prints it.
pub(crate) fn reported_version(engine: &Engine, path: &Path) -> Option<String> {
    let output = Command::new(path).arg(engine.version_probe.argument).stdin(Stdio::null()).output().ok()?;
    engine.version_probe.read(&String::from_utf8_lossy(&output.stdout)).map(Into::into)
}
