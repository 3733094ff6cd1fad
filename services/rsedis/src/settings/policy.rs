//! What goes when memory is full, as it is asked for (`maxmemory-policy`); who goes is found in [`crate::eviction`].

/// What a key's clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// When it was used last: tenths of a second since 1970, modulo 2^32.
    LastUse,
    /// How often it is used: minutes since 1970 modulo 2^16 of the last use, and in the lowest eight bits a counter that grows with
    /// the logarithm of uses, and falls as time goes by.
    Frequency,
}

/// By what it is chosen who goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Clock(ClockKind),
    Random,
    SoonestExpiry,
}

/// `maxmemory-policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Only keys that expire may go.
    pub(crate) only_volatile: bool,
    /// Nothing: no key goes.
    pub(crate) choice: Option<Choice>,
}

/// The policies' names, in the order in which Redis names them.
pub const POLICY_NAMES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

impl Policy {
    /// By its name.
    pub fn of(name: &str) -> Self {
        let (whose, how) = name.split_once('-').unwrap_or_default();
        let choice = match how {
            "lru" => Some(Choice::Clock(ClockKind::LastUse)),
            "lfu" => Some(Choice::Clock(ClockKind::Frequency)),
            "random" => Some(Choice::Random),
            "ttl" => Some(Choice::SoonestExpiry),
            _ => None,
        };
        Self { only_volatile: whose == "volatile", choice }
    }

    /// The clock that it needs.
    pub fn clock(self) -> Option<ClockKind> {
        match self.choice {
            Some(Choice::Clock(kind)) => Some(kind),
            _ => None,
        }
    }
}

/// How quickly the counter of uses grows and falls.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrequencySettings {
    /// `lfu-log-factor`.
    pub log_factor: i64,
    /// `lfu-decay-time`, minutes.
    pub decay_minutes: i64,
}
