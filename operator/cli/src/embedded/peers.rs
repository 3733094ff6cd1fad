//! Finds the executables of stores: in the peers directory that `make peers` fills, then beside storebench itself, where its own
//! stores are built, then on PATH.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use storebench_core::control_plane::{self, ValidatedControlPlane};
use storebench_core::engine::{Engine, STORE};
use storebench_core::record::Unavailable;
use storebench_core::validate::{Target, ValidatedArm, ValidatedService};
use storebench_crds::engine::Source;

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
    // PATH may lead to one of these.
    let is_new = |binary: &Binary| {
        let place = |path: &Path| path.canonicalize().ok();
        found.iter().all(|known| place(&known.path) != place(&binary.path))
    };
    let elsewhere = elsewhere(engine).filter(is_new);
    found.extend(elsewhere);
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
            let mut others: Vec<String> = installed.into_iter().map(|binary| binary.version).collect();
            // One that a recipe brought may be in PATH, too.
            others.sort();
            others.dedup();
            let others = if others.is_empty() { String::new() } else { format!(" (there is {})", others.join(", ")) };
            Err(Unavailable {
                reason: format!("{} {} is not installed here{others}", engine.name, service.version),
                install: how_to_install(&offers(engine), engine.binary(), engine.name, &service.version),
            })
        }
    }
}

/// Everything that one arm runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binaries {
    /// Absent where the store is there already, so that nothing is started.
    pub(crate) store: Option<StoreBinaries>,
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
    let store = match &arm.target {
        Target::Service(service) => Some(find_store(service)?),
        Target::ControlPlane(plane) => Some(find_store(&plane.service)?),
        Target::External(_) => None,
        Target::Cluster(_) => {
            return Err(Unavailable {
                reason: "it is a cluster given by a Secret, which an embedded run has not".into(),
                install: "kubectl apply".into(),
            });
        }
    };
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
    let offer = Offer { command: control_plane::INSTALL.into(), version: Some(control_plane::DEFAULT_VERSION) };
    let install =
        || how_to_install(std::slice::from_ref(&offer), control_plane::BINARIES[0], control_plane::FOLDER, version);
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

/// A command that installs an engine, and the version that it brings, where it brings one.
struct Offer {
    command: String,
    version: Option<&'static str>,
}

/// The versions that the recipes of `peers/fetch` bring: NAME VERSION, one a line.
const PINNED: &str = include_str!("../../../../peers/versions");

/// What installs an engine: its own command, and that of its older line where there is one.
fn offers(engine: &Engine) -> Vec<Offer> {
    let own = match engine.source {
        Source::Crate(_) | Source::Peer(_) | Source::PeerOnRequest(_) => Some(engine.default_version),
        Source::ByHand(_) => None,
    };
    let older = format!("{}-old", engine.name);
    let pinned = |line: &'static str| line.strip_prefix(&older)?.strip_prefix(' ').map(str::trim);
    let older = PINNED
        .lines()
        .find_map(pinned)
        .map(|version| Offer { command: format!("peers/fetch {older}"), version: Some(version) });
    std::iter::once(Offer { command: engine.install(), version: own }).chain(older).collect()
}

/// What installs an engine in the version that storebench was tested with, from where the user is.
pub(crate) fn install(engine: &Engine) -> String {
    how_to_install(&offers(engine), engine.binary(), engine.name, engine.default_version)
}

/// Whether that is a command, which is copied as it is, and no words.
pub(crate) fn is_installed_by_command(engine: &Engine) -> bool {
    !matches!(engine.source, Source::ByHand(_)) && from_here(&engine.install()).is_some()
}

/// What installs an executable from where the user is: the command of the checkout, by its path where that is needed, or where to put it
/// by hand. Of a version that no command brings, that, and which versions there are.
fn how_to_install(offers: &[Offer], binary: &str, folder: &str, version: &str) -> String {
    let by_hand = by_hand(binary, folder, version);
    if let Some(offer) = offers.iter().find(|offer| offer.version.is_none_or(|brought| brought == version)) {
        return from_here(&offer.command).unwrap_or(by_hand);
    }
    let brought =
        offers.iter().filter_map(|offer| Some(format!("{} ({})", offer.version?, from_here(&offer.command)?)));
    let brought = brought.collect::<Vec<_>>().join(", ");
    if brought.is_empty() {
        return by_hand;
    }
    format!(
        "{by_hand}, or ask for a version that a command brings: {brought}; \"A new version\" in peers/README.md says how to bring another"
    )
}

/// A command by the paths that it takes where the user is; `None`: it is of a checkout, and there is none.
fn from_here(command: &str) -> Option<String> {
    let is_of_checkout = command.starts_with("peers/fetch ") || command.starts_with("cargo build ");
    if !is_of_checkout || is_checkout(Path::new(".")) {
        return Some(command.into());
    }
    let own = std::env::current_exe().ok();
    let above = std::env::current_dir().ok();
    let mut folders = above.iter().chain(&own).flat_map(|path| path.ancestors());
    let root = folders.find(|folder| is_checkout(folder))?;
    Some(match command.strip_prefix("peers/fetch ") {
        Some(peer) => format!("{} {peer}", root.join("peers/fetch").display()),
        None => format!("{command} --manifest-path {}", root.join("Cargo.toml").display()),
    })
}

fn by_hand(binary: &str, folder: &str, version: &str) -> String {
    let place = directory()
        .map_or_else(String::new, |directory| format!(", or into {}", directory.join(folder).join(version).display()));
    format!("put {binary} {version} on PATH{place}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use storebench_crds::engine::EngineKind;

    fn install_version(kind: EngineKind, version: &str) -> String {
        let engine = kind.engine();
        how_to_install(&offers(engine), engine.binary(), engine.name, version)
    }

    #[test]
    fn a_version_that_no_command_brings_is_not_answered_with_one() {
        assert!(install_version(EngineKind::Etcd, "3.7.3").ends_with("peers/fetch etcd"));
        assert!(
            install_version(EngineKind::Etcd, "3.6.16").ends_with("peers/fetch etcd-old"),
            "the older line has its own"
        );
        let other = install_version(EngineKind::Etcd, "3.5.0");
        assert!(
            other.starts_with("put etcd 3.5.0 on PATH, or into ") && other.contains("/etcd/3.5.0, or ask for"),
            "{other}"
        );
        assert!(other.contains("3.7.3 (") && other.contains("peers/fetch etcd), 3.6.16 ("), "{other}");
        assert!(other.ends_with("\"A new version\" in peers/README.md says how to bring another"), "{other}");
        let own = install_version(EngineKind::Rusd, "9.9.9");
        assert!(own.contains(&format!("{} (cargo build --release -p rusd", env!("CARGO_PKG_VERSION"))), "{own}");
        let by_hand = EngineKind::HieroBlockNode.engine();
        assert_eq!(install_version(EngineKind::HieroBlockNode, "9.9.9"), by_hand.install());
    }
}
