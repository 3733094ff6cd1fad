//! Until when commands are postponed, and for what: clients have asked for it (`CLIENT PAUSE`), the lead is handed over, replicas
//! are to have everything before the server ends, or the append-only file is to have a base. Each purpose has a pause of its own; the strictest of them holds.

use super::Server;
use crate::waiting;

/// For what commands are postponed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausePurpose {
    /// `CLIENT PAUSE`
    Client,
    /// `SHUTDOWN`
    Shutdown,
    /// `FAILOVER`
    Failover,
    /// Under `appendfsync always`: the append-only file has no base yet, so that nothing in it is safe.
    Base,
}

/// A pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it is over, milliseconds since 1970.
    pub until: i64,
    /// All commands are postponed, else only those that may write.
    pub is_all: bool,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Pauses {
    /// By purpose.
    by_purpose: [Option<Pause>; 4],
}

impl Pauses {
    /// Whether nobody has asked for one, or all were forgotten.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_purpose.iter().all(Option::is_none)
    }

    /// Begins a pause. One that is under way for the same purpose is never made weaker.
    pub fn begin(&mut self, purpose: PausePurpose, pause: Pause, now: i64) {
        let kept = &mut self.by_purpose[purpose as usize];
        *kept = Some(match kept.filter(|before| before.until > now) {
            Some(before) => Pause { until: before.until.max(pause.until), is_all: before.is_all || pause.is_all },
            None => pause,
        });
    }

    /// Ends a pause; whether there was one.
    pub fn end(&mut self, purpose: PausePurpose) -> bool {
        self.by_purpose[purpose as usize].take().is_some()
    }

    /// What holds at a time (milliseconds since 1970): the strictest, and of those that are as strict the longest.
    pub fn strictest(&self, now: i64) -> Option<Pause> {
        let held = self.by_purpose.iter().flatten().filter(|pause| pause.until > now);
        held.copied().max_by_key(|pause| (pause.is_all, pause.until))
    }

    /// Whether there is one for this purpose at a time.
    pub fn holds(&self, purpose: PausePurpose, now: i64) -> bool {
        self.by_purpose[purpose as usize].is_some_and(|pause| pause.until > now)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.by_purpose = Default::default();
    }
}

impl Server {
    /// Whether commands are postponed.
    pub fn is_paused(&self) -> bool {
        self.pauses.strictest(self.now).is_some()
    }

    /// From now on commands that may write are postponed, until [`Server::end_pause`].
    pub fn pause_writes(&mut self, purpose: PausePurpose) {
        self.pauses.begin(purpose, Pause { until: i64::MAX, is_all: false }, self.now);
    }

    /// Ends a pause: what it postponed runs, where no other pause postpones it.
    pub fn end_pause(&mut self, purpose: PausePurpose) {
        if self.pauses.end(purpose) {
            waiting::end_pause(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_holds_and_of_equals_the_longest() {
        let mut pauses = Pauses::default();
        let writes = |until| Pause { until, is_all: false };
        let all = |until| Pause { until, is_all: true };
        assert_eq!(pauses.strictest(0), None);
        pauses.begin(PausePurpose::Failover, writes(i64::MAX), 0);
        pauses.begin(PausePurpose::Shutdown, writes(50), 0);
        assert_eq!(pauses.strictest(10), Some(writes(i64::MAX)));
        pauses.begin(PausePurpose::Client, all(100), 10);
        assert_eq!(pauses.strictest(10), Some(all(100)));
        assert_eq!(pauses.strictest(100), Some(writes(i64::MAX)), "one that is over holds nothing");
        pauses.begin(PausePurpose::Client, writes(90), 50);
        assert_eq!(pauses.strictest(50), Some(all(100)), "never weaker");
        pauses.begin(PausePurpose::Client, writes(300), 200);
        assert!(pauses.end(PausePurpose::Failover) && !pauses.end(PausePurpose::Failover));
        assert_eq!(pauses.strictest(200), Some(writes(300)), "one that is over makes another no stricter");
    }
}
