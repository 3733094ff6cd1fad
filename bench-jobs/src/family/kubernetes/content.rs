//! What is written into objects: text that says by itself which version of which object it is.
//!
//! Pure. `<version>:` and then letters that follow from seed, name and version, cut to the length asked for.

use crate::content::seeds::{mix, mix_text};

/// The data of an object's version, `bytes` long.
pub fn write(seed: u64, name: &str, version: u64, bytes: u32) -> String {
    let bytes = bytes as usize;
    let mut text = format!("{version}:");
    let own = mix(mix_text(seed, name), version);
    let mut block = 0;
    while text.len() < bytes {
        text.push_str(&format!("{:016x}", mix(own, block)));
        block += 1;
    }
    text.truncate(bytes);
    text
}

/// The version that data are of, as they say.
pub fn version(data: &str) -> Option<u64> {
    data.split_once(':')?.0.parse().ok()
}

/// What is wrong with data that should be those of a version; `None` if nothing is.
pub fn mismatch(seed: u64, name: &str, expected: u64, bytes: u32, found: Option<&str>) -> Option<String> {
    let Some(found) = found else { return Some(format!("expected version {expected}, found an object without data")) };
    if found == write(seed, name, expected, bytes) {
        return None;
    }
    Some(match version(found) {
        Some(other) if other != expected => format!("expected version {expected}, found version {other}"),
        _ => format!("expected the {bytes} bytes of version {expected}, found {} others", found.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_recognised_and_nothing_else_is(
            seed: u64, version in 0u64..1_000_000, bytes in 24u32..300, at in 0usize..300,
        ) {
            let mut text = write(seed, "load-1", version, bytes);
            prop_assert_eq!(text.len(), bytes as usize);
            prop_assert_eq!(super::version(&text), Some(version));
            prop_assert_eq!(mismatch(seed, "load-1", version, bytes, Some(&text)), None);
            prop_assert!(mismatch(seed, "load-2", version, bytes, Some(&text)).is_some());
            prop_assert!(mismatch(seed, "load-1", version + 1, bytes, Some(&text)).is_some());
            let at = at % text.len();
            text.replace_range(at..=at, "z");
            prop_assert!(mismatch(seed, "load-1", version, bytes, Some(&text)).is_some());
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let old = write(1, "a", 3, 64);
        assert_eq!(mismatch(1, "a", 4, 64, Some(&old)).unwrap(), "expected version 4, found version 3");
        assert_eq!(mismatch(1, "a", 4, 64, None).unwrap(), "expected version 4, found an object without data");
        assert_eq!(mismatch(1, "b", 3, 64, Some(&old)).unwrap(), "expected the 64 bytes of version 3, found 64 others");
    }
}
