//! The last bytes of the replication stream, so that a replica whose connection was cut need not begin anew.

use std::collections::VecDeque;

/// See the module's description. It never holds more bytes than it may.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: VecDeque<u8>,
    /// How many it may hold.
    size: usize,
    /// Bytes of the stream up to the end of what is held.
    end: u64,
}

impl Backlog {
    /// Without bytes, where a stream has so many behind it.
    pub fn new(end: u64, size: usize) -> Self {
        Self { bytes: VecDeque::new(), size, end }
    }

    /// The stream goes on. The oldest bytes go where there is no room.
    pub fn append(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        let kept = &bytes[bytes.len().saturating_sub(self.size)..];
        self.drop_oldest(self.size - kept.len());
        self.bytes.extend(kept);
    }

    /// Oldest bytes go until so many are left.
    fn drop_oldest(&mut self, left: usize) {
        let excess = self.bytes.len().saturating_sub(left);
        self.bytes.drain(..excess);
    }

    /// It may hold so many bytes now.
    pub fn resize(&mut self, size: usize) {
        self.size = size;
        self.drop_oldest(size);
        if self.bytes.capacity() > size.saturating_mul(2) {
            self.bytes.shrink_to(size);
        }
    }

    /// How many bytes of the stream are in front of what it holds.
    pub fn begin(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes it may hold.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What follows the first so many bytes of the stream, in two parts; nothing if it no longer holds all of that, or if the stream
    /// is not so long.
    pub fn since(&self, offset: u64) -> Option<(&[u8], &[u8])> {
        let skipped = usize::try_from(offset.checked_sub(self.begin())?).ok()?;
        let (first, second) = self.bytes.as_slices();
        match skipped.checked_sub(first.len()) {
            None => Some((&first[skipped..], second)),
            Some(skipped) => Some((second.get(skipped..)?, &[])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Append(Vec<u8>),
        Resize(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            5 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Step::Append),
            1 => (0usize..60).prop_map(Step::Resize),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        /// Against the whole stream: what it gives is what follows, it never has more than it may, and it has all that it can have.
        #[test]
        fn it_gives_what_followed_an_offset_or_nothing(steps in steps(), before in 0u64..1000, size in 0usize..60) {
            let mut backlog = Backlog::new(before, size);
            let (mut stream, mut held) = (Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Append(bytes) => {
                        backlog.append(&bytes);
                        stream.extend_from_slice(&bytes);
                        held = (held + bytes.len()).min(backlog.size());
                    }
                    Step::Resize(size) => {
                        backlog.resize(size);
                        held = held.min(size);
                    }
                }
                prop_assert_eq!(backlog.len(), held);
                prop_assert_eq!(backlog.begin(), before + (stream.len() - held) as u64);
                for offset in 0..before + stream.len() as u64 + 3 {
                    let given = backlog.since(offset).map(|(first, second)| [first, second].concat());
                    let is_held = offset >= backlog.begin() && offset <= before + stream.len() as u64;
                    prop_assert_eq!(given.is_some(), is_held, "{}", offset);
                    if let Some(given) = given {
                        prop_assert_eq!(&given[..], &stream[(offset - before) as usize..]);
                    }
                }
            }
        }
    }
}
