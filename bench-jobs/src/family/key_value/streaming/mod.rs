//! The streaming RPC of our d-engine, as far as the loader uses it: puts, reads, scans, swaps and watches where a workload asks for that door, and
//! what the dialect of release 0.2.4 has not, bounded reads and locks. A client has one request under way at a time; those of one
//! connection share its stream ([`link`]).

mod link;
mod messages;

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use service_kit::client::{Channel, Deadline, StreamReceiver};
use storebench_crds::workload::key_value::ReadLevel;

use crate::failure::Failure;
use link::failure;
use messages::{
    Answer, Asked, Attach, Compare, Condition, Done, Error, Event, Events, Found, KeyValue, Lease, Level, Nothing,
    Operation, OperationResult, Outcome, Put, Read, Scan, WatchRequest, What, Write, Written,
};

pub(super) use link::Link;

const WATCH: &str = "/storebench.dengine.v1.Store/Watch";
/// Keys in a page: more than clients ever stand in a line.
const PAGE_KEYS: u32 = 100_000;
/// The kind of an event that is a put.
const PUT_EVENT: i32 = 0;
/// Codes of errors after which nothing has happened: NOT_LEADER, BUSY, INVALID, NO_SESSION, DENIED.
const NOTHING_HAPPENED: [i32; 5] = [1, 2, 3, 6, 9];

fn operation(done: Done) -> Operation {
    Operation { body: Some(done) }
}

/// The one before a holder in the line of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Before {
    key: Vec<u8>,
    /// The line was looked at as of this index.
    index: u64,
}

/// One client on the stream of a connection.
#[derive(Debug)]
pub(super) struct Streaming {
    link: Link,
    channel: Channel,
    endpoint: Rc<str>,
    deadline: Deadline,
}

impl Streaming {
    /// A client of its own on a stream of the connection to `endpoint`, which is named in failures. It waits for an answer for at most `limit`.
    pub(super) fn new(link: Link, channel: Channel, endpoint: &Rc<str>, limit: Duration) -> Self {
        Self { link, channel, endpoint: Rc::clone(endpoint), deadline: Deadline::new(limit) }
    }

    /// Where it is connected to, `host:port`.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Writes a key.
    pub(super) async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let put = operation(Done::Put(Put { key: key.into(), value: value.into() }));
        match self.write(vec![], vec![put]).await?.1.succeeded {
            true => Ok(()),
            false => Err(self.failure(&"a put did not succeed, and depends on nothing")),
        }
    }

    /// Gives a key another value if it has the expected one; whether it had.
    pub(super) async fn swap(&mut self, key: &[u8], expected: &[u8], value: &[u8]) -> Result<bool, Failure> {
        let compare = Compare { key: key.into(), condition: Some(Condition::ValueIs(expected.into())) };
        let put = operation(Done::Put(Put { key: key.into(), value: value.into() }));
        Ok(self.write(vec![compare], vec![put]).await?.1.succeeded)
    }

    /// Reads all keys with a prefix, with their values, at level Linearizable; page by page where they do not fit into one. The prefix ends in a
    /// byte that is not the last of all.
    pub(super) async fn scan(&mut self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, Failure> {
        let end = Some(end_of(prefix));
        let mut scan = Scan { start: prefix.into(), end, limit: PAGE_KEYS, after: None, keys_only: false };
        let mut all: Vec<(Bytes, Bytes)> = Vec::new();
        loop {
            let (_, found) = self.read(Level::Linearizable(Nothing {}), What::Scan(scan.clone())).await?;
            let is_empty = found.items.is_empty();
            all.extend(found.items.into_iter().map(|item| (item.key, item.value)));
            match all.last() {
                Some((last, _)) if found.more && !is_empty => scan.after = Some(last.to_vec()),
                _ if found.more => return Err(self.failure(&"an empty page of a scan that has more")),
                _ => return Ok(all),
            }
        }
    }

    /// Reads a key; `None`: there is none.
    pub(super) async fn get(&mut self, key: &[u8], level: ReadLevel) -> Result<Option<Bytes>, Failure> {
        let level = match level {
            ReadLevel::Lease => Level::Lease(Nothing {}),
            // An age is asked for by `get_bounded`; without one, what promises more.
            ReadLevel::Linearizable | ReadLevel::Bounded => Level::Linearizable(Nothing {}),
            ReadLevel::Eventual => Level::Eventual(Nothing {}),
        };
        self.get_at(key, level).await
    }

    /// Reads a key whose value is no older than so much; `None`: there is none.
    pub(super) async fn get_bounded(&mut self, key: &[u8], max_age: Duration) -> Result<Option<Bytes>, Failure> {
        self.get_at(key, Level::BoundedMicros(u64::try_from(max_age.as_micros()).unwrap_or(u64::MAX))).await
    }

    async fn get_at(&mut self, key: &[u8], level: Level) -> Result<Option<Bytes>, Failure> {
        let found = self.read(level, What::Get(key.into())).await?.1;
        match &found.items[..] {
            [] => Ok(None),
            [KeyValue { key: found, value, .. }] if found == key => Ok(Some(value.clone())),
            [KeyValue { key: found, .. }, ..] => {
                Err(self.failure(&format_args!("found key {} in its place", found.escape_ascii())))
            }
        }
    }

    /// Grants a lease; its number.
    pub(super) async fn grant(&mut self, ttl: Duration) -> Result<u64, Failure> {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let (_, written) = self.write(vec![], vec![operation(Done::GrantMillis(millis))]).await?;
        match lease_of(&written) {
            Some(Some(lease)) => Ok(lease.number),
            _ => Err(self.failure(&"a lease is granted without a lease")),
        }
    }

    /// Has a lease begin anew.
    pub(super) async fn keep_alive(&mut self, lease: u64) -> Result<(), Failure> {
        let (_, written) = self.write(vec![], vec![operation(Done::KeepAlive(lease))]).await?;
        match lease_of(&written) {
            Some(Some(_)) => Ok(()),
            _ => Err(self.failure(&"a lease that is kept alive has ended")),
        }
    }

    /// Ends a lease.
    pub(super) async fn revoke(&mut self, lease: u64) -> Result<(), Failure> {
        self.write(vec![], vec![operation(Done::Revoke(lease))]).await.map(drop)
    }

    /// Puts a key that ends with a lease; its revision.
    pub(super) async fn stand_in_line(&mut self, key: &[u8], lease: u64) -> Result<u64, Failure> {
        let put = operation(Done::Put(Put { key: key.into(), value: Vec::new() }));
        let attach = operation(Done::Attach(Attach { key: key.into(), lease }));
        Ok(self.write(vec![], vec![put, attach]).await?.0)
    }

    /// The key with the newest revision below this one, of those with a prefix that ends in a slash; `None`: it has the oldest.
    pub(super) async fn before(&mut self, prefix: &[u8], revision: u64) -> Result<Option<Before>, Failure> {
        let end = Some(end_of(prefix));
        let scan = Scan { start: prefix.into(), end, limit: PAGE_KEYS, after: None, keys_only: true };
        let (index, found) = self.read(Level::Linearizable(Nothing {}), What::Scan(scan)).await?;
        if found.more || !found.items.iter().any(|item| item.revision == revision) {
            return Err(self.failure(&"a key of a lease that is alive does not stand in its line"));
        }
        let before = found.items.into_iter().filter(|item| item.revision < revision);
        Ok(before.max_by_key(|item| item.revision).map(|item| Before { key: item.key.into(), index }))
    }

    /// Watches a key from a revision on; 0: from now on.
    async fn watch_from(&mut self, key: Vec<u8>, from_revision: u64) -> Result<Watch, Failure> {
        let call = self.channel.call(WATCH);
        let stream = self.channel.stream(&call, &WatchRequest { start: key, from_revision }).await;
        let (mut sender, events) = stream.map_err(|error| self.failure(&error))?;
        sender.finish().map_err(|error| self.failure(&error))?;
        Ok(Watch { events, endpoint: Rc::clone(&self.endpoint), told: VecDeque::new() })
    }

    /// Watches a key from some moment on which is not long after.
    pub(super) async fn watch(&mut self, key: &[u8]) -> Result<Watch, Failure> {
        self.watch_from(key.into(), 0).await
    }

    /// Waits until a key has gone.
    pub(super) async fn wait_for_end_of(&mut self, before: Before) -> Result<(), Failure> {
        let mut watch = self.watch_from(before.key, before.index + 1).await?;
        while watch.next().await?.is_some() {}
        Ok(())
    }

    /// Puts a key if another one still has its revision; whether it had.
    pub(super) async fn put_fenced(
        &mut self,
        (fence, revision): (&[u8], u64),
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Failure> {
        let compare = Compare { key: fence.into(), condition: Some(Condition::RevisionIs(revision)) };
        let put = operation(Done::Put(Put { key: key.into(), value: value.into() }));
        Ok(self.write(vec![compare], vec![put]).await?.1.succeeded)
    }

    /// Deletes a key; whether it was there.
    pub(super) async fn delete(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let (_, written) = self.write(vec![], vec![operation(Done::Delete(key.into()))]).await?;
        Ok(matches!(&written.results[..], [OperationResult { body: Some(Outcome::Deleted(true)) }]))
    }

    /// The index of a write, and what came of it.
    async fn write(&mut self, compares: Vec<Compare>, then: Vec<Operation>) -> Result<(u64, Written), Failure> {
        match self.ask(Asked::Write(Write { compares, then })).await? {
            (index, Answer::Written(written)) => Ok((index, written)),
            _ => Err(self.failure(&"an answer that a write has not")),
        }
    }

    async fn read(&mut self, level: Level, what: What) -> Result<(u64, Found), Failure> {
        match self.ask(Asked::Read(Read { level: Some(level), what: Some(what) })).await? {
            (index, Answer::Found(found)) => Ok((index, found)),
            _ => Err(self.failure(&"an answer that a read has not")),
        }
    }

    async fn ask(&mut self, asked: Asked) -> Result<(u64, Answer), Failure> {
        let limit = self.deadline.limit();
        match self.deadline.run(self.link.ask(asked)).await {
            Ok(Ok((_, Answer::Error(error)))) => Err(self.refused(&error)),
            Ok(answered) => answered,
            Err(_) => Err(self.failure(&format_args!("no answer within {limit:?}"))),
        }
    }

    fn refused(&self, error: &Error) -> Failure {
        refused(&self.endpoint, error)
    }

    fn failure(&self, error: &dyn std::fmt::Display) -> Failure {
        failure(&self.endpoint, error)
    }
}

fn refused(endpoint: &str, error: &Error) -> Failure {
    let failure = failure(endpoint, &format_args!("error {}: {}", error.code, error.message));
    if NOTHING_HAPPENED.contains(&error.code) { failure.without_effect() } else { failure }
}

/// What happens to a key.
#[derive(Debug)]
pub(super) struct Watch {
    events: StreamReceiver<Events>,
    endpoint: Rc<str>,
    told: VecDeque<Event>,
}

impl Watch {
    /// The value of the next put; `None`: the key has gone. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(event) = self.told.pop_front() {
                return Ok((event.kind == PUT_EVENT).then_some(event.value));
            }
            let told = self.events.next().await.map_err(|error| failure(&self.endpoint, &error))?;
            let Some(told) = told else { return Err(failure(&self.endpoint, &"a watch has ended")) };
            if let Some(error) = told.error {
                return Err(refused(&self.endpoint, &error));
            }
            self.told.extend(told.events);
        }
    }
}

/// The first key behind all that begin with a prefix, the last byte of which is not the last of all.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn lease_of(written: &Written) -> Option<Option<&Lease>> {
    match &written.results[..] {
        [OperationResult { body: Some(Outcome::Lease(got)) }] => Some(got.lease.as_ref()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use service_kit::client::Options;
    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!((end_of(b"k001"), end_of(b"a/")), (b"k002".to_vec(), b"a0".to_vec()));
    }

    /// As the comments of the `.proto` file say. A client that believes otherwise would take a write for lost that is there.
    #[test]
    fn only_refusals_have_surely_not_happened() {
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        let codes: Vec<i32> = runtime.block_on(async {
            let (near, _far) = tokio::io::duplex(64);
            let limit = Duration::from_secs(1);
            let channel = Channel::over(near, "127.0.0.1:1", Options::new(limit)).await.unwrap();
            let endpoint: Rc<str> = "127.0.0.1:1".into();
            let streaming = Streaming::new(Link::new(&channel, &endpoint), channel.clone(), &endpoint, limit);
            let refused = |code| streaming.refused(&Error { code, message: String::new() });
            (0..=9).filter(|code| refused(*code).has_not_happened()).collect()
        });
        assert_eq!(codes, [1, 2, 3, 6, 9]);
    }
}
