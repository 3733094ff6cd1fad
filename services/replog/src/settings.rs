//! What can be chosen, and what follows from it.

/// Settings of a node. All members of a group must agree on the drift; in `election_ticks` they may differ, as they tell each other
/// how long they promise their votes. The largest decides how long a group is without a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Group number in the write-ahead log, which several groups may share.
    pub group: u16,
    /// The grain of elections and heartbeats, microseconds.
    pub tick_micros: u64,
    /// A leader is heard at least this often.
    pub heartbeat_ticks: u32,
    /// The shortest time without a leader after which a node asks for votes; the longest is about twice that.
    pub election_ticks: u32,
    /// How wrong the *rate* of a member's clock may be, parts per million. Lease reads are linearizable as long as this holds;
    /// reads of level `Linearizable` do not depend on it. Clocks that NTP slews stay within 500.
    pub clock_drift_ppm: u32,
    /// Taken off the lease besides: the time between reading the clock and using it.
    pub lease_margin_micros: u64,
    /// The largest command, bytes.
    pub command_bytes_max: usize,
    /// Entries in one message to a follower, bytes; a single entry may be larger.
    pub append_bytes_max: u64,
    /// Messages with entries to one follower that may be unanswered.
    pub append_messages_max: usize,
    /// Proposals that are not yet committed, bytes. Beyond, [`crate::Rejected::Busy`].
    pub uncommitted_bytes_max: u64,
    /// Committed entries handed out at once, bytes.
    pub apply_bytes_max: u64,
    /// Reads that may wait. Beyond, [`crate::Rejected::Busy`].
    pub reads_max: usize,
    /// A snapshot is made after so many entries, and not before these have half the size of the last snapshot.
    pub snapshot_entries: u64,
    /// The same after so many bytes of commands: whoever starts reads all of it.
    pub snapshot_log_bytes: u64,
    /// Applied entries kept in memory, and on disk behind a snapshot, for followers that lag a little: a new leader would have to
    /// send them a snapshot. They take no more than `snapshot_log_bytes`. A member without others keeps none in memory.
    pub snapshot_keep_entries: u64,
    /// What a leader keeps in memory for members that it does not hear of, bytes: so much may be written while one of them is
    /// started again, and it goes on without a snapshot. Those that it hears of get whatever they lack.
    pub lagging_log_bytes: u64,
    /// Size of a snapshot's chunks, bytes.
    pub snapshot_chunk_bytes: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            group: 0,
            tick_micros: 20_000,
            heartbeat_ticks: 5,
            election_ticks: 50,
            clock_drift_ppm: 500,
            lease_margin_micros: 10_000,
            command_bytes_max: 8 << 20,
            append_bytes_max: 1 << 20,
            append_messages_max: 64,
            uncommitted_bytes_max: 64 << 20,
            apply_bytes_max: 4 << 20,
            reads_max: 100_000,
            snapshot_entries: 100_000,
            snapshot_log_bytes: 4 << 20,
            snapshot_keep_entries: 10_000,
            lagging_log_bytes: 32 << 20,
            snapshot_chunk_bytes: 1 << 20,
        }
    }
}

impl Settings {
    /// The shortest election timeout: for so long a node that has heard a leader votes for nobody else.
    pub fn election_micros(&self) -> u64 {
        self.tick_micros * u64::from(self.election_ticks)
    }

    /// How long after it sent a round a leader may count on who acknowledged it, and with it promised its vote for so long.
    ///
    /// A follower heard the round no earlier than it was sent, and withholds its vote for what it promised, of a clock that may be
    /// fast by the drift; the leader's clock may be slow by the drift. Hence the factor `(1 - d) / (1 + d)`. No promise counts for
    /// more than [`Settings::election_micros`].
    pub fn lease_micros(&self, promised_micros: u64) -> u64 {
        let million = 1_000_000_u128;
        let drift = u128::from(self.clock_drift_ppm).min(million);
        let lease = u128::from(promised_micros.min(self.election_micros())) * (million - drift) / (million + drift);
        (lease as u64).saturating_sub(self.lease_margin_micros)
    }

    /// What is wrong with them, if anything.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let wrong = [
            (self.tick_micros == 0, "tick_micros is 0"),
            (self.heartbeat_ticks == 0, "heartbeat_ticks is 0"),
            (self.election_ticks < 3 * self.heartbeat_ticks, "election_ticks is less than three times heartbeat_ticks"),
            (self.append_messages_max == 0, "append_messages_max is 0"),
            (self.snapshot_chunk_bytes == 0, "snapshot_chunk_bytes is 0"),
            (self.snapshot_entries == 0, "snapshot_entries is 0"),
            (self.uncommitted_bytes_max < self.append_bytes_max, "uncommitted_bytes_max is less than append_bytes_max"),
        ];
        wrong.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, what)| Err(*what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_on_a_slow_clock_ends_before_a_promise_on_a_fast_one() {
        for drift in [0, 500, 10_000, 200_000] {
            let settings = Settings { clock_drift_ppm: drift, lease_margin_micros: 0, ..Settings::default() };
            let drift = f64::from(drift) / 1e6;
            let lease_real = settings.lease_micros(u64::MAX) as f64 / (1.0 - drift);
            let promise_real = settings.election_micros() as f64 / (1.0 + drift);
            assert!(lease_real <= promise_real, "{lease_real} > {promise_real} at drift {drift}");
        }
    }
}
