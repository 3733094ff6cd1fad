//! What compaction without being asked keeps: `--auto-compaction-mode` and `--auto-compaction-retention`.

use std::time::Duration;

use crate::flags::{Flags, Mistake, duration};

const HOUR: Duration = Duration::from_secs(3600);

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// What is younger.
    Period(Duration),
    /// So many revisions.
    Revisions(i64),
}

impl Retention {
    /// Reads the flags; `None`: nothing is compacted without being asked.
    pub fn of(flags: &Flags) -> Result<Option<Self>, Mistake> {
        const MODE: &str = "auto-compaction-mode";
        const RETENTION: &str = "auto-compaction-retention";
        let text = flags.given(RETENTION).unwrap_or("0");
        let number = text.parse::<i64>();
        match flags.given(MODE).unwrap_or("periodic") {
            "revision" => match number {
                Ok(revisions) if revisions >= 0 => Ok(Some(Self::Revisions(revisions)).filter(|_| revisions > 0)),
                _ => Err(Mistake::new(RETENTION, format!("expected a number of revisions, found {text:?}"))),
            },
            "periodic" => {
                // A number is one of hours.
                let period = match number {
                    Ok(hours) => u32::try_from(hours).ok().map(|hours| HOUR * hours),
                    Err(_) => Some(duration(RETENTION, text)?),
                };
                let what = || format!("expected hours, or a duration such as 30m, found {text:?}");
                let period = period.ok_or_else(|| Mistake::new(RETENTION, what()))?;
                Ok(Some(Self::Period(period)).filter(|_| !period.is_zero()))
            }
            other => Err(Mistake::new(MODE, format!("expected periodic or revision, found {other:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn retention(arguments: &[&str]) -> Result<Option<Retention>, String> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        let flags = Flags::parse(arguments, [], |_| Ok(String::new())).unwrap();
        Retention::of(&flags).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn the_flags_are_those_of_etcd() {
        let period = |period| Ok(Some(Retention::Period(period)));
        assert_eq!(retention(&[]), Ok(None));
        assert_eq!(retention(&["--auto-compaction-retention=2"]), period(2 * HOUR));
        assert_eq!(retention(&["--auto-compaction-retention=30m"]), period(30 * MINUTE));
        let revision = "--auto-compaction-mode=revision";
        assert_eq!(retention(&[revision, "--auto-compaction-retention=7"]), Ok(Some(Retention::Revisions(7))));
        assert_eq!(retention(&[revision, "--auto-compaction-retention=0"]), Ok(None));
        let mistake = retention(&[revision, "--auto-compaction-retention=5m"]).unwrap_err();
        assert!(mistake.starts_with("--auto-compaction-retention: expected a number of revisions"), "{mistake}");
        assert!(retention(&["--auto-compaction-mode=never"]).unwrap_err().starts_with("--auto-compaction-mode: "));
    }
}
