//! Where a run ran, a hash that tells whether two runs ran under the same conditions, and one that tells whether two workloads ask the same.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use storebench_crds::Workload;
use storebench_crds::status::Fingerprint;

/// The fingerprint of these facts: SHA-256 over `name=value` lines in the order of names, first 16 hexadecimal digits.
pub fn of(facts: BTreeMap<String, String>) -> Fingerprint {
    let mut hash = Sha256::new();
    for (name, value) in &facts {
        hash.update(format!("{name}={value}\n"));
    }
    Fingerprint { hash: shortened(hash.finalize().as_ref()), facts }
}

/// What tells one digest from every other: its first 16 hexadecimal digits.
pub fn shortened(digest: &[u8]) -> String {
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Tells what a workload asks from everything else that one could ask, whatever it is called and wherever it was written: SHA-256, first 16
/// hexadecimal digits.
pub fn of_workload(workload: &Workload) -> String {
    let unnamed = Workload { name: String::new(), ..workload.clone() };
    let text = serde_json::to_string(&unnamed).unwrap_or_default();
    shortened(Sha256::digest(text).as_ref())
}
