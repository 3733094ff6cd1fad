//! The file system as the log sees it: one flat directory. [`RealDirectory`] is the operating system's;
//! [`SimulatedDirectory`] forgets what was not synced and fails on demand; [`CountingDirectory`] counts;
//! [`HeldDirectory`] holds syncs up.

mod counting;
mod held;
mod real;
mod simulated;

use std::io;

pub use counting::{CountingDirectory, Counts};
pub use held::HeldDirectory;
pub use real::RealDirectory;
pub use simulated::{Fault, SimulatedDirectory};

/// A directory that belongs to one log. Clones are handles of the same directory.
pub trait Directory: Clone + Send + 'static {
    /// A file in it.
    type File: File;

    /// Names of all files, in any order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// A file of that many zeros, written out and synced so that later writes and syncs of its data need no room and change
    /// nothing but data. It grows where it is written to behind its end, and a sync of its data makes that safe as well: one of no zeros
    /// is not synced before. Replaces a file of that name. The name itself is safe only after [`Directory::sync`]. When this fails, no file is left.
    fn create_zeroed(&self, name: &str, bytes: u64) -> io::Result<Self::File>;

    /// An existing file, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Renames a file; safe after [`Directory::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; safe after [`Directory::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names of files that were created, renamed or removed survive a power cut.
    fn sync(&self) -> io::Result<()>;
}

/// An open file.
pub trait File: Send + 'static {
    /// All of its bytes.
    fn read(&self) -> io::Result<Vec<u8>>;

    /// Its first bytes, so many or as many as there are.
    fn read_first(&self, bytes: usize) -> io::Result<Vec<u8>>;

    /// As many bytes as `into` has, from this offset on.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;

    /// How many bytes it has.
    fn bytes(&self) -> io::Result<u64>;

    /// Writes at this offset.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file to that many of its bytes; safe after [`File::sync_data`].
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes safe what was written (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
}
