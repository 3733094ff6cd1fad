//! Where a run ran, and a hash that tells whether two runs ran under the same conditions.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use storebench_crds::status::Fingerprint;

/// The fingerprint of these facts: SHA-256 over `name=value` lines in the order of names, first 16 hexadecimal digits.
pub fn of(facts: BTreeMap<String, String>) -> Fingerprint {
    let mut hash = Sha256::new();
    for (name, value) in &facts {
        hash.update(format!("{name}={value}\n"));
    }
    let hash = hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Fingerprint { hash, facts }
}
