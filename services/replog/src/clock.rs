//! Time, as the caller hands it in. Nothing but [`crate::runtime`] reads a clock.

/// What the caller's clocks showed *after* it took from its queue the input that it hands in together with this. (A value
/// read before could make a promise end before it was heard to begin.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds of a clock that never goes back and that goes on while the machine is suspended: `CLOCK_BOOTTIME`.
    /// Timeouts and leases are measured with it.
    pub boot_micros: u64,
    /// Milliseconds since 1970, as far as this machine knows. It may jump. A leader stamps entries with it.
    pub unix_millis: u64,
}
