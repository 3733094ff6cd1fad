//! The loop's side of one client: what it has sent and not said yet, and how much it has taken.

use crate::protocol::Parser;
use crate::settings::OutputLimit;

/// Bytes on their way in and out.
#[derive(Debug)]
pub struct Connection {
    /// Received, and not a whole command yet.
    pub query: Vec<u8>,
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

impl Default for Connection {
    fn default() -> Self {
        Self {
            query: Vec::new(),
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
