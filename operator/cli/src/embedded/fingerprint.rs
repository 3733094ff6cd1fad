//! Where a run ran: the facts that must be equal before two runs may be compared, and a hash of them.

use std::collections::BTreeMap;
use std::path::Path;

use bench_jobs::measure::{disk, machine};
use storebench_core::fingerprint;
use storebench_core::validate::ValidatedRun;
use storebench_core::validated::ValidatedArm;
use storebench_crds::engine::Source;
use storebench_crds::status::Fingerprint;

use super::peers::{Binaries, reported_version};

/// Gathers the facts. One that cannot be read is left out, which changes the hash.
pub(crate) fn take(run: &ValidatedRun, binaries: &[Option<Binaries>], data: &Path) -> Fingerprint {
    let mut facts = BTreeMap::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    for (name, value) in machine::facts() {
        fact(name, Some(value));
    }
    fact("cores", std::thread::available_parallelism().ok().map(|cores| cores.to_string()));
    fact("governor", machine::first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    fact("clocksource", machine::first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
    fact("cpu quota", cpu_quota());
    fact("file system", disk::file_system(data).map(str::to_owned));
    // Its loader is half of every number.
    let own = std::env::current_exe().ok().and_then(|path| digest(&path));
    let own = own.map_or_else(String::new, |digest| format!(" sha256:{digest}"));
    fact("storebench", Some(format!("{}{own}", env!("CARGO_PKG_VERSION"))));
    for (arm, binary) in run.arms.iter().zip(binaries) {
        if let Some(store) = arm.external() {
            fact(&format!("service {}", store.name), Some(format!("external at {}", store.place())));
        }
        let (Some(binaries), Some(service)) = (binary, arm.service()) else { continue };
        let Some(found) = &binaries.store else { continue };
        let binary = &found.store;
        let version = reported_version(service.engine, &binary.path).unwrap_or_else(|| binary.version.clone());
        let digest = digest(&binary.path).map_or_else(String::new, |digest| format!(" sha256:{digest}"));
        fact(&format!("service {}", service.name), Some(format!("{} {version}{digest}", service.engine.name)));
        for (role, companion) in &found.companions {
            fact(&format!("{role} of {}", service.name), Some(companion.version.clone()));
        }
        if let (Some(plane), Some(kubernetes)) = (arm.control_plane(), &binaries.control_plane) {
            let stated = format!("Kubernetes {}, {} nodes", kubernetes.version, plane.nodes);
            fact(&format!("control plane {}", plane.name), Some(stated));
        }
    }
    fingerprint::of(facts)
}

/// What a reader must know of stores of our own that were built together with this storebench, if that was for tests.
pub(crate) fn build_caveat(run: &ValidatedRun, binaries: &[Option<Binaries>]) -> Option<String> {
    let own = std::env::current_exe().ok()?;
    let is_ours = |(arm, binaries): &(&ValidatedArm, &Option<Binaries>)| {
        let store = binaries.as_ref().and_then(|binaries| binaries.store.as_ref());
        let is_crate = arm.service().is_some_and(|service| matches!(service.engine.source, Source::Crate(_)));
        is_crate && store.is_some_and(|found| found.store.path.parent() == own.parent())
    };
    let ours = run.arms.iter().zip(binaries).filter(is_ours).map(|(arm, _)| arm.name.as_str());
    unpublished(&ours.collect::<Vec<_>>(), cfg!(debug_assertions))
}

fn unpublished(arms: &[&str], has_assertions: bool) -> Option<String> {
    has_assertions.then(|| {
        let (which, are) = match arms {
            [] => ("the loader was".to_owned(), "is slower than it is"),
            arms => (format!("{} and the loader were", arms.join(", ")), "are slower than they are"),
        };
        format!(
            "{which} built for tests, with assertions and without link-time optimisation, and {are} as published: \
             for numbers to rely on, cargo build --profile published --workspace --bins, and run target/published/storebench"
        )
    })
}

/// What a reader must know about the file system under the data, if it makes durability cheap.
pub(crate) fn file_system_caveat(data: &Path) -> Option<String> {
    let name = disk::file_system(data)?;
    matches!(name, "tmpfs" | "ramfs").then(|| {
        format!(
            "the data are on {name}, where a sync costs nothing and nothing survives: choose a disk with --data-dir"
        )
    })
}

/// The CPU quota of our control group, where there is one (cgroup v2, then v1).
fn cpu_quota() -> Option<String> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let quota = match controllers {
            "" => {
                machine::first_line(&format!("/sys/fs/cgroup{path}/cpu.max")).filter(|quota| !quota.starts_with("max"))
            }
            _ if controllers.split(',').any(|controller| controller == "cpu") => {
                machine::first_line(&format!("/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us"))
                    .filter(|quota| !quota.starts_with('-'))
            }
            _ => None,
        }?;
        Some(format!("{quota} µs"))
    })
}

fn digest(path: &Path) -> Option<String> {
    fingerprint::of_content(std::fs::File::open(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_built_for_tests_is_said_of_stores_of_our_own_alone() {
        let said = unpublished(&["rusd", "d-engine"], true).unwrap();
        assert!(said.starts_with("rusd, d-engine and the loader were built for tests"), "{said}");
        let said = unpublished(&[], true).unwrap();
        assert!(
            said.starts_with("the loader was built for tests"),
            "of others nobody here knows how they were built: {said}"
        );
        assert_eq!(unpublished(&["rusd"], false), None);
    }
}
