//! A watch stream: its watchers, and what waits to be told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Event, NO_WATCHER, Response};

/// A stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// Numbers of watchers by the ids that the client knows.
    pub watchers: BTreeMap<i64, u64>,
    /// Those that are behind.
    pub behind: BTreeSet<u64>,
    /// What its watchers take.
    pub watchers_bytes: usize,
    queue: VecDeque<Item>,
    /// How many items have left the queue's front: items are named by their place since the beginning.
    gone: u64,
    /// Items before this one take no more events: an answer that came after them would be overtaken.
    sealed: u64,
    bytes: usize,
    next_id: i64,
}

/// What waits.
#[derive(Debug)]
pub enum Item {
    /// An answer.
    Said(Response),
    /// Events for one watcher, and the newest revision among them.
    Events { watcher: u64, revision: i64, events: Vec<Event> },
}

fn bytes_of(item: &Item) -> usize {
    match item {
        Item::Said(_) => 0,
        Item::Events { events, .. } => events.iter().map(Event::encoded_len).sum(),
    }
}

impl Stream {
    /// An id for a new watcher: that wanted, or for 0 the next that is free. `None` if it is taken.
    pub fn name_watcher(&mut self, wanted: i64) -> Option<i64> {
        if wanted != 0 {
            return (!self.watchers.contains_key(&wanted)).then_some(wanted);
        }
        while self.watchers.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Some(self.next_id - 1)
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How much memory waiting events take, about: as much as their messages will have.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the last that was said is progress up to this revision.
    pub fn ends_with_progress(&self, revision: i64) -> bool {
        let progress = Response { watch_id: NO_WATCHER, revision, ..Default::default() };
        matches!(self.queue.back(), Some(Item::Said(response)) if *response == progress)
    }

    pub fn say(&mut self, response: Response) {
        self.queue.push_back(Item::Said(response));
        self.sealed = self.gone + self.queue.len() as u64;
    }

    /// Whether an item has events of a revision.
    pub fn has_of_revision(&mut self, item: Option<u64>, wanted: i64) -> bool {
        matches!(self.item(item), Some(Item::Events { revision, .. }) if *revision == wanted)
    }

    /// Puts an event to those of the same watcher, if they still wait, and says where.
    pub fn push(&mut self, number: u64, queued: Option<u64>, event: Event) -> u64 {
        self.bytes += event.encoded_len();
        let main = event.record.main();
        let open = queued.filter(|at| *at >= self.sealed);
        if let Some(Item::Events { watcher, revision, events }) = self.item(open)
            && *watcher == number
        {
            events.push(event);
            *revision = main;
            return open.unwrap_or_default();
        }
        self.queue.push_back(Item::Events { watcher: number, revision: main, events: vec![event] });
        self.gone + self.queue.len() as u64 - 1
    }

    fn item(&mut self, at: Option<u64>) -> Option<&mut Item> {
        let at = usize::try_from(at?.checked_sub(self.gone)?).ok()?;
        self.queue.get_mut(at)
    }

    pub fn pop(&mut self) -> Option<Item> {
        let item = self.queue.pop_front()?;
        self.gone += 1;
        self.bytes -= bytes_of(&item);
        Some(item)
    }

    /// Puts back what is left of the item that was taken last. It takes no more events: its revision is being told.
    pub fn push_back_in_front(&mut self, item: Item) {
        self.bytes += bytes_of(&item);
        self.gone -= 1;
        self.queue.push_front(item);
        self.sealed = self.sealed.max(self.gone + 1);
    }
}

#[cfg(test)]
impl Stream {
    pub fn next_id_for_tests(&self) -> i64 {
        self.next_id
    }
}
