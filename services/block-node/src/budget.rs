//! How many messages publishers may send, in the Java node's words: so many of one in each short interval, and so many of all together. Who
//! has used its own up waits for the next interval; who does so time and again is not read from for a while, ever longer.
//!
//! Off unless it is asked for: flow control and the bounds of memory hold a publisher back without it. A pause begins between two blocks:
//! within one, all other publishers would wait for it. Pure: time comes as an argument.

/// How many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Of one publisher in an interval.
    pub messages_max: u32,
    /// Of all of them.
    pub all_messages_max: u32,
    /// How long an interval is; at least 1.
    pub interval_micros: u64,
    /// After so many intervals in a row in which it has used up its own it is paused, …
    pub full_intervals: u32,
    /// … so long for the first time, twice as long for the second, three times as long for the third.
    pub pause_micros: u64,
    /// After so long the first time comes again.
    pub forgotten_micros: u64,
}

/// Messages in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    interval: u64,
    messages: u32,
}

impl Used {
    /// One more, in this interval.
    fn count(&mut self, interval: u64) -> u32 {
        if self.interval != interval {
            *self = Self { interval, messages: 0 };
        }
        self.messages = self.messages.saturating_add(1);
        self.messages
    }
}

/// Why nothing is read from a publisher, until the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The next interval begins then.
    Interval(u64),
    /// It has used up its own for many intervals in a row.
    Pause(u64),
}

impl Wait {
    /// The end.
    pub fn until_micros(self) -> u64 {
        match self {
            Self::Interval(until) | Self::Pause(until) => until,
        }
    }
}

/// A publisher's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    used: Used,
    full_intervals: u32,
    must_pause: bool,
    pauses: u32,
    /// When they were forgotten last, in units of that time.
    pauses_since: u64,
}

impl Budget {
    /// A message has come. `all`: those of all publishers.
    pub fn count(
        &mut self,
        settings: &Settings,
        all: &mut Used,
        is_within_block: bool,
        now_micros: u64,
    ) -> Option<Wait> {
        let interval = now_micros / settings.interval_micros;
        let before = self.used;
        let (messages, all_messages) = (self.used.count(interval), all.count(interval));
        if messages == 1 && (before.messages < settings.messages_max || before.interval + 1 != interval) {
            self.full_intervals = 0;
        }
        if messages == settings.messages_max {
            self.full_intervals += 1;
            self.must_pause |= self.full_intervals >= settings.full_intervals;
        }
        if self.must_pause && !is_within_block {
            let since = now_micros / settings.forgotten_micros;
            self.pauses = if self.pauses_since == since { self.pauses + 1 } else { 1 };
            (self.must_pause, self.full_intervals, self.pauses_since) = (false, 0, since);
            return Some(Wait::Pause(now_micros + settings.pause_micros * u64::from(self.pauses)));
        }
        let is_used_up = messages >= settings.messages_max || all_messages >= settings.all_messages_max;
        is_used_up.then(|| Wait::Interval((interval + 1) * settings.interval_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        messages_max: 3,
        all_messages_max: 5,
        interval_micros: 10,
        full_intervals: 2,
        pause_micros: 1_000,
        forgotten_micros: 100_000,
    };

    #[test]
    fn who_has_used_up_its_messages_waits_for_the_next_interval_and_so_do_all_together() {
        let (mut one, mut two, mut all) = (Budget::default(), Budget::default(), Used::default());
        assert_eq!(one.count(&SETTINGS, &mut all, true, 100), None);
        assert_eq!(one.count(&SETTINGS, &mut all, true, 101), None);
        assert_eq!(one.count(&SETTINGS, &mut all, true, 109), Some(Wait::Interval(110)));
        assert_eq!(two.count(&SETTINGS, &mut all, true, 109), None);
        assert_eq!(two.count(&SETTINGS, &mut all, true, 109), Some(Wait::Interval(110)), "five of all");
        assert_eq!(two.count(&SETTINGS, &mut all, true, 110), None);
    }

    #[test]
    fn who_uses_up_its_messages_time_and_again_is_paused_between_two_blocks_and_ever_longer() {
        let (mut budget, mut all) = (Budget::default(), Used::default());
        let mut use_up = |interval: u64, is_within_block| {
            let now = 10 * interval;
            (0..3).filter_map(|_| budget.count(&SETTINGS, &mut all, is_within_block, now)).last()
        };
        assert_eq!(use_up(10, false), Some(Wait::Interval(110)));
        assert_eq!(use_up(12, false), Some(Wait::Interval(130)), "not in a row");
        assert_eq!(use_up(13, true), Some(Wait::Interval(140)), "within a block");
        assert_eq!(use_up(14, false), Some(Wait::Interval(150)), "it was paused with the first message");
        let mut budget = Budget::default();
        let mut pauses = Vec::new();
        for interval in (0..6).chain(10_000..10_002) {
            let now = 10 * interval;
            let waits = (0..3).filter_map(|_| budget.count(&SETTINGS, &mut all, false, now));
            pauses.extend(waits.filter(|wait| matches!(wait, Wait::Pause(_))).map(|wait| wait.until_micros() - now));
        }
        assert_eq!(pauses, [1_000, 2_000, 3_000, 1_000]);
    }
}
