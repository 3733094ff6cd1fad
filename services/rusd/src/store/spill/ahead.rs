//! Records on their way into a keyspace that is made again. They wait in their order while the budget has room for their values; of
//! the oldest that are too many the values go to files. Cold before it is in the trees, none has to be found there again.

use std::collections::VecDeque;

use super::{Record, SLACK_PART, Spill, WRITE_BYTES};

/// Records that wait, each with what belongs to it.
pub struct Ahead<'a, T> {
    spill: Option<&'a mut Spill>,
    waiting: VecDeque<(Record, T)>,
    hot_bytes: u64,
}

impl<'a, T> Ahead<'a, T> {
    /// Without files nothing waits.
    pub fn new(spill: Option<&'a mut Spill>) -> Self {
        Self { spill, waiting: VecDeque::new(), hot_bytes: 0 }
    }

    /// Lets a record in, and those out that need not wait any longer: cold, if they could be written. Of those that are out,
    /// `out_hot_bytes` are in memory.
    pub fn push(&mut self, record: Record, with: T, out_hot_bytes: u64) -> Vec<(Record, T)> {
        self.hot_bytes += record.hot_bytes() as u64;
        self.waiting.push_back((record, with));
        let Some(spill) = &mut self.spill else { return self.waiting.drain(..).collect() };
        let hot_bytes = out_hot_bytes + self.hot_bytes;
        if !spill.is_over(hot_bytes) {
            return Vec::new();
        }
        let bytes_max = (spill.limits.memory_bytes / SLACK_PART).min(WRITE_BYTES as u64);
        let (mut count, mut bytes) = (0, 0);
        for (record, _) in &self.waiting {
            if count > 0 && bytes >= bytes_max {
                break;
            }
            bytes += record.hot_bytes() as u64;
            count += 1;
        }
        self.hot_bytes -= bytes;
        let mut out: Vec<_> = self.waiting.drain(..count).collect();
        let is_hot = |record: &Record| record.hot_bytes() > 0;
        let hot: Vec<_> = out.iter().map(|(record, _)| record).filter(|record| is_hot(record)).cloned().collect();
        if hot.is_empty() {
            return out;
        }
        let cooled = spill.cool(&hot);
        let cold = spill.noted(hot_bytes, cooled).unwrap_or_default();
        let places = out.iter_mut().map(|(record, _)| record).filter(|record| is_hot(record));
        places.zip(cold).for_each(|(place, cold)| *place = cold);
        out
    }

    /// Those that wait still.
    pub fn finish(self) -> impl Iterator<Item = (Record, T)> {
        self.waiting.into_iter()
    }
}
