//! Deterministic names: the same run, trial and arm always get the same, and no two ever share one.

use sha2::{Digest as _, Sha256};

/// Longest part of a run's name in a trial's name. With the rest it stays below
/// [`STATEFUL_SET_CHARACTERS_MAX`].
const RUN_CHARACTERS_MAX: usize = 22;
/// Longest part of an arm's name in a trial's name.
const ARM_CHARACTERS_MAX: usize = 12;

/// The most that the name of a StatefulSet may have: its pods carry it and a hash in a label.
const STATEFUL_SET_CHARACTERS_MAX: usize = 52;

/// The name of the objects of a StorageService: its own, unless that is too long for a StatefulSet.
pub fn store(service: &str) -> String {
    if service.len() <= STATEFUL_SET_CHARACTERS_MAX {
        return service.into();
    }
    format!("{}-{}", shortened(service, STATEFUL_SET_CHARACTERS_MAX - 7), hash(&[service]))
}

/// The name of the objects of a ControlPlane, or of the control plane of a trial. A StorageService may have the same name as
/// a ControlPlane; their objects do not.
pub fn control_plane(name: &str) -> String {
    const END: &str = "-k8s";
    if name.len() + END.len() <= STATEFUL_SET_CHARACTERS_MAX {
        return format!("{name}{END}");
    }
    let shortened = shortened(name, STATEFUL_SET_CHARACTERS_MAX - END.len() - 7);
    format!("{shortened}-{}{END}", hash(&[name]))
}

/// The name of the objects of a companion of a store.
pub fn companion(store: &str, role: &str) -> String {
    if store.len() + 1 + role.len() <= STATEFUL_SET_CHARACTERS_MAX {
        return format!("{store}-{role}");
    }
    let shortened = shortened(store, STATEFUL_SET_CHARACTERS_MAX - role.len() - 8);
    format!("{shortened}-{}-{role}", hash(&[store, role]))
}

/// The name of the Secret that says how a control plane of that name is reached.
pub fn kubeconfig(control_plane: &str) -> String {
    format!("{control_plane}-kubeconfig")
}

/// The name of the Secret of a trial that has what is shown to strike its store.
pub fn strike(trial: &str) -> String {
    format!("{trial}-strike")
}

/// The name of everything of one trial of an arm, such as `redis-valkey-3-valkey-1f0c9a`. The hash tells apart what
/// shortening makes alike, and the runs that have the same name one after the other.
pub fn trial(run: &str, uid: &str, index: u32, arm: &str) -> String {
    let hash = hash(&[run, uid, &index.to_string(), arm]);
    format!("{}-{index}-{}-{hash}", shortened(run, RUN_CHARACTERS_MAX), shortened(arm, ARM_CHARACTERS_MAX))
}

/// Six hexadecimal digits of a hash of these parts.
fn hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize()[..3].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of the ConfigMap with a run's report.
pub fn report(run: &str) -> String {
    format!("{run}-report")
}

/// The name of the ConfigMap with what a baseline keeps.
pub fn baseline(baseline: &str) -> String {
    format!("{baseline}-baseline")
}

fn shortened(name: &str, characters_max: usize) -> &str {
    // Names are ASCII by the schema.
    name.get(..characters_max).unwrap_or(name).trim_end_matches('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_they_are() {
        let name = trial("redis-valkey", "uid", 3, "valkey");
        assert!(name.starts_with("redis-valkey-3-valkey-"), "{name}");
        assert_eq!(name, trial("redis-valkey", "uid", 3, "valkey"));
    }

    #[test]
    fn names_that_read_alike_differ() {
        assert_ne!(trial("x-1", "uid", 1, "b"), trial("x", "uid", 1, "1-b"));
        assert_ne!(trial("run", "uid-1", 1, "b"), trial("run", "uid-2", 1, "b"));
    }

    #[test]
    fn the_longest_names_fit_a_stateful_set() {
        let name = trial(&"r".repeat(63), "uid", 40, &"a".repeat(32));
        assert!(name.len() <= 52, "{} characters", name.len());
        assert!(store(&"s".repeat(63)).len() <= 52);
        assert!(control_plane(&"s".repeat(63)).len() <= 52);
        assert!(control_plane(&name).len() <= 52);
        assert!(companion(&name, "object-store").len() <= 52);
        assert_ne!(companion(&format!("{}-1", "s".repeat(50)), "o"), companion(&format!("{}-2", "s".repeat(50)), "o"));
        assert_eq!(companion("walsync", "object-store"), "walsync-object-store");
        assert_eq!(report(&"r".repeat(63)).len(), 70, "a ConfigMap may have 253");
    }
}
