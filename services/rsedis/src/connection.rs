//! The loop's side of one client: what it has sent and not said yet, and how much it has taken.

use crate::protocol::Parser;
use crate::settings::OutputLimit;

/// Bytes on their way in and out.
#[derive(Debug)]
pub struct Connection {
    /// Received, and not run yet.
    pub query: Query,
    /// Reads [`Connection::query`].
    pub parser: Parser,
    /// How much of the replies was sent.
    pub sent: usize,
    /// How much of the replies may be sent: what follows may tell of writes of this turn of the loop that are not in the append-only file
    /// yet.
    pub safe: usize,
    /// It is not listened to: too many replies wait.
    pub is_paused: bool,
    /// Which events are wanted: readable, writable.
    pub wants: (bool, bool),
    /// Since when its replies have been above the soft limit, milliseconds since 1970.
    above_since: Option<i64>,
}

/// What somebody has sent. What was run goes once it is more than what was not: else who sends many commands at once, each of which waits,
/// has all others behind moved to the front as often.
#[derive(Debug, Default)]
pub struct Query {
    bytes: Vec<u8>,
    passed: usize,
}

impl Query {
    /// What was not run yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.passed..]
    }

    /// Bytes of that.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.passed
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it takes of memory.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// What comes is put behind this.
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What was not run yet, and nothing besides.
    pub fn whole(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..std::mem::take(&mut self.passed));
        &mut self.bytes
    }

    /// So many bytes were run. Where that were all, no memory is kept.
    pub fn pass(&mut self, count: usize) {
        self.passed += count;
        if self.is_empty() {
            *self = Self::default();
        } else if self.passed > self.len() {
            self.whole();
        }
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            query: Query::default(),
            parser: Parser::default(),
            sent: 0,
            safe: 0,
            is_paused: false,
            wants: (true, false),
            above_since: None,
        }
    }
}

impl Connection {
    /// Whether they were above the soft limit when they were looked at last: they may be for too long without anything else happening.
    pub fn is_above(&self) -> bool {
        self.above_since.is_some()
    }

    /// Whether the replies that wait are over a limit.
    pub fn is_over(&mut self, waiting: u64, limit: OutputLimit, now: i64) -> bool {
        if limit.soft == 0 || waiting <= limit.soft {
            self.above_since = None;
        }
        let since = match limit.soft > 0 && waiting > limit.soft {
            true => *self.above_since.get_or_insert(now),
            false => now,
        };
        (limit.hard > 0 && waiting > limit.hard) || (now - since) / 1000 > limit.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of many commands moved all behind it: 84 MB of them made others wait for 112 ms.
    #[test]
    fn what_is_behind_many_commands_is_not_moved_for_each_of_them() {
        let mut query = Query::default();
        let bytes: Vec<u8> = (0..8 << 20).map(|at: u32| at as u8).collect();
        query.end().extend_from_slice(&bytes);
        let mut moves = 0;
        for at in (0..bytes.len()).step_by(8) {
            let place = query.rest().as_ptr();
            assert_eq!(query.rest().first(), bytes.get(at));
            assert_eq!(query.len(), bytes.len() - at);
            query.pass(8);
            moves += usize::from(!query.is_empty() && query.rest().as_ptr() != place.wrapping_add(8));
        }
        assert!((1..=24).contains(&moves), "{moves}");
        assert!(query.is_empty() && query.capacity() == 0);
    }

    #[test]
    fn limits_are_hard_and_soft() {
        let limit = OutputLimit { hard: 100, soft: 10, seconds: 5 };
        let mut connection = Connection::default();
        assert!(connection.is_over(101, limit, 0));
        assert!(!connection.is_over(50, limit, 0));
        assert!(!connection.is_over(50, limit, 5_000));
        assert!(connection.is_over(50, limit, 6_001), "above the soft limit for too long");
        assert!(!connection.is_over(5, limit, 7_000));
        assert!(!connection.is_over(50, limit, 8_000), "counted anew");
        assert!(!connection.is_over(u64::MAX, OutputLimit::default(), 0), "zero is no limit");
    }
}
