//! What blocks have in common, so that a small block shrinks as if it were part of a large one: a zstd dictionary, trained from blocks that
//! came a moment ago, and kept only where it makes them smaller.
//!
//! A dictionary stands in each segment that has blocks which need it, twice, so that no block needs another file, and damage to one copy
//! costs nothing. Looking a block up stays one read of the index and one of its record; the dictionary is read once and kept.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock};

use zstd::dict::EncoderDictionary;

use super::contexts;
use crate::hash::sha384;

/// A dictionary is not larger at the levels below [`THOROUGH`], which find little more in a larger one.
const DICTIONARY_BYTES_MAX: usize = 64 << 10;
/// From this level of zstd on, a larger one pays: twice in a segment of 64 MiB it takes a hundred-and-twenty-eighth of that.
const THOROUGH: i32 = 3;
const LARGE_DICTIONARY_BYTES_MAX: usize = 256 << 10;
/// Blocks from which one is trained, …
const SAMPLES: usize = 96;
/// … or fewer, if they have so many bytes together. Of a larger block the beginning counts.
const SAMPLES_BYTES: usize = 3 << 20;
const SAMPLE_BYTES_MAX: usize = 128 << 10;
/// Blocks change with time: after so many bytes of them another dictionary is trained.
const TRAIN_EVERY_BYTES: u64 = 256 << 20;
/// After a dictionary that was of no use, the next is trained after so many bytes; after another one after four times as many, …
const TRY_AGAIN_BYTES: u64 = 32 << 20;
/// … and at last after so many: blocks that have nothing in common are of a kind, and training takes a processor for a tenth of a second.
const TRY_AGAIN_BYTES_MAX: u64 = 2 << 30;

/// A dictionary to compress with.
pub struct Dictionary {
    id: u64,
    bytes: Vec<u8>,
    encoder: EncoderDictionary<'static>,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Dictionary {:016x} of {} bytes", self.id, self.bytes.len())
    }
}

impl PartialEq for Dictionary {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Dictionary {}

impl Dictionary {
    /// One with this content, to compress with at this level of zstd.
    pub fn new(bytes: Vec<u8>, level: i32) -> Self {
        let hash = sha384(&[&bytes]);
        let id = hash.iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte));
        Self { id, encoder: EncoderDictionary::copy(&bytes, level), bytes }
    }

    /// The beginning of its hash.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Compresses a block.
    pub(super) fn compress(&self, plain: &[u8]) -> io::Result<Vec<u8>> {
        contexts::compress_with(plain, &self.encoder)
    }
}

/// Blocks from which a dictionary can be trained, which takes a tenth of a second or so.
#[derive(Debug, Default)]
pub struct Samples {
    bytes: Vec<u8>,
    lengths: VecDeque<usize>,
}

impl Samples {
    /// Trains one from the first three quarters. `None`: it would not make the others, which it has not seen, smaller by a thirty-second part
    /// at least.
    pub fn train(self, level: i32) -> Option<Dictionary> {
        let lengths: Vec<usize> = self.lengths.into();
        let (seen, others) = lengths.split_at(lengths.len() * 3 / 4);
        let (seen_bytes, mut other_bytes) = self.bytes.split_at(seen.iter().sum());
        let bytes_max = if level < THOROUGH { DICTIONARY_BYTES_MAX } else { LARGE_DICTIONARY_BYTES_MAX };
        let bytes_max = bytes_max.min(seen_bytes.len() / 8);
        // Of blocks that have nothing in common zstd says that it cannot be done.
        let trained = zstd::dict::from_continuous(seen_bytes, seen, bytes_max).ok()?;
        let dictionary = Dictionary::new(trained, level);
        let (mut with, mut without) = (0, 0);
        for length in others {
            let (block, rest) = other_bytes.split_at(*length);
            with += dictionary.compress(block).ok()?.len();
            without += zstd::bulk::compress(block, level).ok()?.len();
            other_bytes = rest;
        }
        (with + without / 32 < without).then_some(dictionary)
    }
}

/// Where a dictionary is left by who trains it, `None` where it would be of no use. Nobody waits for him, who works behind all others.
type Trained = Arc<OnceLock<Option<Dictionary>>>;

/// What is to be trained from, on whatever thread; [`Trainer`] finds what becomes of it.
#[derive(Debug)]
pub struct Training {
    samples: Samples,
    trained: Trained,
}

impl Training {
    /// Trains, at this level of zstd. Locks nothing, and waits for nobody.
    pub fn run(self, level: i32) {
        // Nobody else has set it.
        let _ = self.trained.set(self.samples.train(level));
    }
}

/// Decides when a dictionary is trained, and from what.
#[derive(Debug)]
pub struct Trainer {
    current: Option<Arc<Dictionary>>,
    samples: Samples,
    /// Blocks that come before this is zero are not taken as samples.
    rest_bytes: u64,
    /// How long that is after the next dictionary that is of no use.
    try_again_bytes: u64,
    /// Somebody trains.
    training: Option<Trained>,
}

impl Trainer {
    /// Goes on with what a store has used last.
    pub fn new(current: Option<Arc<Dictionary>>) -> Self {
        let rest_bytes = if current.is_some() { TRAIN_EVERY_BYTES } else { 0 };
        let try_again_bytes = TRY_AGAIN_BYTES;
        Self { current, samples: Samples::default(), rest_bytes, try_again_bytes, training: None }
    }

    /// What blocks are compressed with now.
    pub fn dictionary(&mut self) -> Option<Arc<Dictionary>> {
        self.collect();
        self.current.clone()
    }

    /// A block has come. What comes back is to be trained from.
    pub fn take(&mut self, block: &[u8]) -> Option<Training> {
        self.collect();
        if self.training.is_some() {
            return None;
        }
        if self.rest_bytes > 0 {
            self.rest_bytes = self.rest_bytes.saturating_sub(block.len() as u64);
            return None;
        }
        let sample = &block[..block.len().min(SAMPLE_BYTES_MAX)];
        self.samples.bytes.extend_from_slice(sample);
        self.samples.lengths.push_back(sample.len());
        let is_enough = self.samples.lengths.len() >= SAMPLES || self.samples.bytes.len() >= SAMPLES_BYTES;
        is_enough.then(|| {
            let trained = Arc::clone(self.training.insert(Trained::default()));
            Training { samples: std::mem::take(&mut self.samples), trained }
        })
    }

    /// Looks whether somebody has trained.
    fn collect(&mut self) {
        // Until then he has it, too. Where he has left nothing he could not begin.
        if let Some(trained) = self.training.as_mut().and_then(Arc::get_mut) {
            let dictionary = trained.take().flatten();
            tracing::info!(bytes = dictionary.as_ref().map(|found| found.bytes().len()), "trained a dictionary");
            self.trained(dictionary);
        }
    }

    /// What became of the samples.
    fn trained(&mut self, dictionary: Option<Dictionary>) {
        self.training = None;
        (self.rest_bytes, self.try_again_bytes) = match dictionary {
            Some(_) => (TRAIN_EVERY_BYTES, TRY_AGAIN_BYTES),
            None => (self.try_again_bytes, (4 * self.try_again_bytes).min(TRY_AGAIN_BYTES_MAX)),
        };
        // One that is of no use for the newest blocks is of none for the next ones either.
        self.current = dictionary.map(Arc::new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::craft::{Crafter, Shape, Traffic};
    use crate::store::LEVEL;
    use crate::store::contexts::decompress_with;
    use zstd::dict::DecoderDictionary;

    fn samples(blocks: impl Iterator<Item = Vec<u8>>) -> Samples {
        let mut trainer = Trainer::new(None);
        let taken = blocks.take(SAMPLES).filter_map(|block| trainer.take(&block)).last();
        assert_eq!(trainer.take(&[0; 10_000]).map(|_| ()), None, "somebody trains");
        taken.expect("enough blocks").samples
    }

    #[test]
    fn blocks_that_have_much_in_common_shrink_more_and_come_back() {
        let mut traffic = Traffic::new(1);
        let mut crafter = Crafter::new(1, 0);
        let mut block = || crafter.next_of(traffic.items(12)).bytes;
        let dictionary = samples(std::iter::from_fn(|| Some(block()))).train(LEVEL).unwrap();
        assert!(dictionary.bytes().len() <= DICTIONARY_BYTES_MAX);
        let decoder = DecoderDictionary::copy(dictionary.bytes());
        for _ in 0..20 {
            let block = block();
            let with = dictionary.compress(&block).unwrap();
            let without = zstd::bulk::compress(&block, LEVEL).unwrap();
            assert!(with.len() * 10 < without.len() * 9, "{} instead of {}", with.len(), without.len());
            assert_eq!(decompress_with(&with, &decoder, block.len()).unwrap(), block);
            assert!(decompress_with(&with, &decoder, block.len() - 1).is_err());
        }
    }

    #[test]
    fn blocks_that_have_nothing_in_common_get_no_dictionary_and_it_is_tried_again_later() {
        let mut random = 0_u64;
        let mut block = || -> Vec<u8> {
            std::iter::repeat_with(|| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 56) as u8
            })
            .take(9_000)
            .collect()
        };
        let samples = samples(std::iter::from_fn(|| Some(block())));
        let mut trainer = Trainer::new(None);
        trainer.trained(samples.train(LEVEL));
        assert_eq!(trainer.dictionary(), None);
        assert!(trainer.take(&block()).is_none() && trainer.samples.bytes.is_empty());
        trainer.rest_bytes = 0;
        assert!(trainer.take(&block()).is_none() && trainer.samples.lengths.len() == 1);
        // Less and less often, until one was of use.
        let mut rests = Vec::new();
        for dictionary in [None, None, None, None, Some(Dictionary::new(block(), LEVEL)), None] {
            trainer.trained(dictionary);
            rests.push(trainer.rest_bytes >> 20);
        }
        assert_eq!(rests, [128, 512, 2_048, 2_048, 256, 32]);
    }

    #[test]
    fn who_packs_goes_on_while_somebody_trains_and_has_what_comes_of_it_afterwards() {
        let (mut crafter, mut traffic) = (Crafter::new(1, 0), Traffic::new(1));
        let mut block = || crafter.next_of(traffic.items(12)).bytes;
        let mut trainer = Trainer::new(None);
        let mut training = |trainer: &mut Trainer| (0..SAMPLES).find_map(|_| trainer.take(&block())).unwrap();
        let first = training(&mut trainer);
        assert!(trainer.dictionary().is_none() && trainer.take(&[7; 100]).is_none(), "it is not there yet");
        std::thread::spawn(|| first.run(LEVEL)).join().unwrap();
        assert!(trainer.dictionary().is_some());
        trainer.rest_bytes = 0;
        // There was no thread.
        drop(training(&mut trainer));
        assert_eq!((trainer.dictionary(), trainer.rest_bytes), (None, TRY_AGAIN_BYTES), "it is tried again later");
    }

    #[test]
    fn a_large_block_counts_with_its_beginning() {
        let mut trainer = Trainer::new(None);
        let large = Crafter::new(1, 0).next(Shape::of_bytes(500_000)).bytes;
        assert!(trainer.take(&large).is_none());
        assert_eq!(trainer.samples.bytes.len(), SAMPLE_BYTES_MAX);
    }
}
