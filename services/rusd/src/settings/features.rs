//! `--feature-gates`: those of etcd 3.7, with their stages and defaults; what each does here.

use crate::flags::{Flags, Mistake};

const FLAG: &str = "feature-gates";

/// A gate: its name, its stage, whether it is open if nothing is said.
///
/// `CompactHashCheck` and `InitialCorruptCheck` do what they do in etcd. `SetMemberLocalAddr` has a connection to another member begin at
/// the address that this member advertises. The others tune what rusd does another way, and change nothing.
const GATES: [(&str, &str, bool); 11] = [
    ("AllAlpha", "ALPHA", false),
    ("AllBeta", "BETA", false),
    ("CompactHashCheck", "ALPHA", false),
    ("FastLeaseKeepAlive", "BETA", true),
    ("InitialCorruptCheck", "ALPHA", false),
    ("LeaseCheckpoint", "ALPHA", false),
    ("LeaseCheckpointPersist", "ALPHA", false),
    ("PriorityRequest", "ALPHA", false),
    ("SetMemberLocalAddr", "ALPHA", false),
    ("StopGRPCServiceOnDefrag", "ALPHA", false),
    ("TxnModeWriteWithSharedBuffer", "BETA", true),
];

/// Which gates are open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features([bool; GATES.len()]);

impl Features {
    pub(super) fn of(flags: &Flags) -> Result<Self, Mistake> {
        let mut features = Self(GATES.map(|(_, _, default)| default));
        let given = flags.given(FLAG).unwrap_or_default().split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let mut named = Vec::new();
        for pair in given {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| Mistake::new(FLAG, format!("expected NAME=true or NAME=false, found {pair:?}")))?;
            let value = match value.trim() {
                "true" | "TRUE" | "True" | "1" | "t" | "T" => true,
                "false" | "FALSE" | "False" | "0" | "f" | "F" => false,
                other => return Err(Mistake::new(FLAG, format!("{name}: expected true or false, found {other:?}"))),
            };
            match name.trim() {
                "AllAlpha" => features.set_all("ALPHA", value),
                "AllBeta" => features.set_all("BETA", value),
                name => {
                    let place = GATES.iter().position(|(gate, ..)| *gate == name);
                    let place =
                        place.ok_or_else(|| Mistake::new(FLAG, format!("unrecognized feature gate: {name}")))?;
                    named.push((place, value));
                }
            }
        }
        // What is named itself counts, wherever it stands.
        for (place, value) in named {
            features.0[place] = value;
        }
        Ok(features)
    }

    fn set_all(&mut self, stage: &str, value: bool) {
        for (is_open, (_, of, _)) in self.0.iter_mut().zip(GATES) {
            if of == stage {
                *is_open = value;
            }
        }
    }

    /// Whether a gate is open.
    pub fn is_open(&self, name: &str) -> bool {
        self.all().any(|(gate, _, is_open)| gate == name && is_open)
    }

    /// All gates: name, stage, whether it is open.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        GATES.iter().zip(self.0).map(|((name, stage, _), is_open)| (*name, *stage, is_open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(text: &str) -> Result<Features, String> {
        let flags = Flags::parse([format!("--feature-gates={text}")], [], |_| Ok(String::new())).unwrap();
        Features::of(&flags).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn gates_are_opened_by_name_and_by_stage() {
        let open =
            |text: &str| features(text).unwrap().all().filter(|gate| gate.2).map(|gate| gate.0).collect::<Vec<_>>();
        assert_eq!(open(""), ["FastLeaseKeepAlive", "TxnModeWriteWithSharedBuffer"]);
        assert_eq!(open("InitialCorruptCheck=true, AllBeta=false"), ["InitialCorruptCheck"]);
        assert_eq!(open("CompactHashCheck=false,AllAlpha=true").len(), 9);
        let mistakes = [
            ("Foo=true", "--feature-gates: unrecognized feature gate: Foo"),
            ("CompactHashCheck", "--feature-gates: expected NAME=true or NAME=false, found \"CompactHashCheck\""),
            ("CompactHashCheck=yes", "--feature-gates: CompactHashCheck: expected true or false, found \"yes\""),
        ];
        for (text, mistake) in mistakes {
            assert_eq!(features(text).unwrap_err(), mistake);
        }
    }
}
