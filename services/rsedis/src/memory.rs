//! How much memory is allocated: exactly when it is looked up, and nearly, for next to nothing, in between.

/// What the allocator tells.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    /// Bytes that all threads have allocated. Slow.
    pub total: fn() -> u64,
    /// Bytes that the calling thread has allocated since it began, less those that it has freed. Quick.
    pub own: fn() -> i64,
    /// Gives the system back what is not used; whether it could.
    pub purge: fn() -> bool,
    /// A report for people.
    pub report: fn() -> String,
}

impl Allocator {
    /// Nothing is known.
    const NONE: Self = Self { total: || 0, own: || 0, purge: || true, report: String::new };
}

/// Memory as it stands: the last look, and what this thread has done since.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    allocator: Allocator,
    total: u64,
    own: i64,
    /// The most that was seen.
    pub peak: u64,
    /// When the server began to serve.
    pub at_start: u64,
}

impl Default for Memory {
    /// Nothing is known: nothing is used.
    fn default() -> Self {
        Self { allocator: Allocator::NONE, total: 0, own: 0, peak: 0, at_start: 0 }
    }
}

impl Memory {
    /// As an allocator tells it.
    pub fn new(allocator: Allocator) -> Self {
        let mut memory = Self { allocator, ..Self::default() };
        memory.look();
        memory.at_start = memory.total;
        memory
    }

    /// Looks it up.
    pub fn look(&mut self) {
        self.total = (self.allocator.total)();
        self.own = (self.allocator.own)();
        self.peak = self.peak.max(self.total);
    }

    /// Gives the system back what is not used; whether it could.
    pub fn purge(&self) -> bool {
        (self.allocator.purge)()
    }

    /// The allocator's report for people.
    pub fn report(&self) -> String {
        (self.allocator.report)()
    }

    /// Bytes that are allocated now. What other threads did since the last look is missing.
    #[inline]
    pub fn used(&self) -> u64 {
        self.total.saturating_add_signed((self.allocator.own)() - self.own)
    }
}
