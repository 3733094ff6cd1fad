//! Settings of a log.

/// Settings of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of a segment's file. A batch that is larger gets a segment of its size.
    pub segment_bytes: u32,
    /// Size of the first segment of a new log: small, so that a new store need not wait until a large file is zeroed.
    pub first_segment_bytes: u32,
    /// Whether a batch is synced before it counts as committed. Without it a crash of the process loses nothing, but a
    /// crash of the system may leave a log that [`crate::Log::open`] has to refuse.
    pub sync: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: 4 << 20, first_segment_bytes: 1 << 20, sync: true }
    }
}
