//! The last bytes of the replication stream, so that a replica whose connection was cut need not begin anew.

use std::collections::VecDeque;

/// See the module's description. It never holds more bytes than it may, but for those that a replica is to get behind its keys.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: VecDeque<u8>,
    /// How many it may hold.
    size: usize,
    /// What follows so many bytes of the stream is kept, however much that is.
    pinned: Option<u64>,
    /// Bytes of the stream up to the end of what is held.
    end: u64,
}

impl Backlog {
    /// Without bytes, where a stream has so many behind it.
    pub fn new(end: u64, size: usize) -> Self {
        Self { bytes: VecDeque::new(), size, pinned: None, end }
    }

    /// The stream goes on. The oldest bytes go where there is no room.
    pub fn append(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        let most = self.most();
        let kept = &bytes[bytes.len().saturating_sub(most)..];
        self.drop_oldest(most - kept.len());
        let missing = (self.bytes.len() + kept.len()).saturating_sub(self.bytes.capacity());
        if missing > 0 {
            // Not by doubling: what is pinned may be large.
            self.bytes.reserve_exact(kept.len().max(self.bytes.len() / 8));
        }
        self.bytes.extend(kept);
    }

    /// How many bytes it may hold now, with what is pinned.
    fn most(&self) -> usize {
        let pinned = self.pinned.map_or(0, |from| usize::try_from(self.end.saturating_sub(from)).unwrap_or(usize::MAX));
        self.size.max(pinned)
    }

    /// What follows so many bytes of the stream stays until another place is pinned, or none.
    pub fn pin(&mut self, from: Option<u64>) {
        if self.pinned != from {
            self.pinned = from;
            self.trim();
        }
    }

    fn trim(&mut self) {
        let most = self.most();
        self.drop_oldest(most);
        if self.bytes.capacity() > most.saturating_mul(2) {
            self.bytes.shrink_to(most);
        }
    }

    /// Oldest bytes go until so many are left.
    fn drop_oldest(&mut self, left: usize) {
        let excess = self.bytes.len().saturating_sub(left);
        self.bytes.drain(..excess);
    }

    /// It may hold so many bytes now.
    pub fn resize(&mut self, size: usize) {
        self.size = size;
        self.trim();
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
        /// So many bytes before the end, or none.
        Pin(Option<u64>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            5 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Step::Append),
            1 => (0usize..60).prop_map(Step::Resize),
            1 => proptest::option::of(0u64..30).prop_map(Step::Pin),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        /// Against the whole stream: what it gives is what follows, it never has more than it may, and it has all that it can have.
        #[test]
        fn it_gives_what_followed_an_offset_or_nothing(steps in steps(), before in 0u64..1000, size in 0usize..60) {
            let mut backlog = Backlog::new(before, size);
            let (mut stream, mut held, mut pinned) = (Vec::new(), 0, None);
            for step in steps {
                match step {
                    Step::Append(bytes) => {
                        backlog.append(&bytes);
                        stream.extend_from_slice(&bytes);
                        held += bytes.len();
                    }
                    Step::Resize(size) => {
                        backlog.resize(size);
                    }
                    Step::Pin(back) => {
                        pinned = back.map(|back| stream.len().saturating_sub(back as usize));
                        backlog.pin(pinned.map(|from| before + from as u64));
                    }
                }
                let wanted = pinned.map_or(0, |from| stream.len() - from);
                held = held.min(backlog.size().max(wanted));
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
