//! Where a run ran, a hash that tells whether two runs ran under the same conditions, and one that tells whether two workloads ask the same.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};

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

/// Tells one content, such as an executable's, from every other: SHA-256, first 16 hexadecimal digits. It is read in parts: a program that
/// has once freed as much memory as an executable takes has glibc keep as much of all that it frees later (`M_MMAP_THRESHOLD` in mallopt(3)).
pub fn of_content(mut content: impl Read) -> io::Result<String> {
    const PART_BYTES: usize = 64 << 10;
    let mut hash = Sha256::new();
    let mut part = vec![0; PART_BYTES];
    loop {
        match content.read(&mut part) {
            Ok(0) => return Ok(shortened(hash.finalize().as_ref())),
            Ok(bytes) => hash.update(&part[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Tells what a workload asks from everything else that one could ask, whatever it is called and wherever it was written: SHA-256, first 16
/// hexadecimal digits.
pub fn of_workload(workload: &Workload) -> String {
    let unnamed = Workload { name: String::new(), ..workload.clone() };
    let text = serde_json::to_string(&unnamed).unwrap_or_default();
    shortened(Sha256::digest(text).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_told_by_all_its_parts_also_where_a_signal_comes_in_between() {
        /// Gives a byte at a time, and is interrupted before each.
        struct Interrupted<'a>(&'a [u8], bool);
        impl Read for Interrupted<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.1 = !self.1;
                if self.1 { Err(ErrorKind::Interrupted.into()) } else { self.0.read(&mut buffer[..1]) }
            }
        }
        // printf abc | sha256sum
        assert_eq!(of_content(Interrupted(b"abc", false)).unwrap(), "ba7816bf8f01cfea");
        assert_eq!(of_content(&b"abc"[..]).unwrap(), "ba7816bf8f01cfea");
        assert_ne!(of_content(&[0; 1 << 17][..]).unwrap(), of_content(&[0; (1 << 17) - 1][..]).unwrap());
    }
}
