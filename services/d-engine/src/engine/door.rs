//! What one says to a member: the same within the process and behind every server.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use d_engine_client::{
    Answer, Batch, BoxFuture, Door, Error, Query, ReadLevel, ReadOptions, ReadPath, Scan, Seen, Stamp, Transaction,
    Watch, WatchOptions, Written,
};
use futures::StreamExt as _;
use futures::future::Either;
use replog::runtime::{Committed, Proposal, ProposeError, ReadError, Ticket};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::Node;
use crate::history::{Step, TooOld, Watcher};
use crate::machine::{Reply, View};
use crate::state::{
    Command, LimitError, Principal, QueryError, Refusal, UserChange, Users, answer, bytes_of, check, check_bound,
    check_key, is_long_query,
};

/// Keys that are asked for at a time.
const KEYS_MAX: usize = 10_000;

/// Keys that a scan without pages is thought to have; what has more is looked at beside other clients.
const SHORT_SCAN_KEYS: u32 = 50;

/// What a member does with a write when it does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLeading {
    /// It says who leads.
    Refuse,
    /// It hands the write to the leader.
    Forward,
}

/// Writes that were begun and wait to enter the log together: see [`Node::submit`].
#[derive(Default)]
pub(crate) struct Begun(Vec<Proposal<Reply>>);

impl Node {
    /// Begins to put a transaction into the log, wherever the leader is. `done` is called once after [`Node::submit`], perhaps on the thread that
    /// applies: it must be quick. Whom it names is woken when others that were done together with this one have been told. On a tokio runtime.
    pub(crate) fn write_then(
        &self,
        begun: &mut Begun,
        transaction: Transaction,
        stamp: Option<Stamp>,
        done: impl FnOnce(Result<Written, Error>) -> Option<Waker> + Send + 'static,
    ) {
        if let Err(error) = check(&transaction) {
            return wake(done(Err(invalid(error))));
        }
        if self.users().may_write(self.principal(), &transaction) {
            return self.submit_then(begun, self.on_behalf(Command::Write(transaction, stamp)), done);
        }
        // It may have to wait for what this member has not heard yet.
        tell_later(self.write_later(transaction, stamp, NotLeading::Forward), done);
    }

    /// What the state of this member refuses: it may not have heard of a grant yet, so it is asked again once it has. What nobody may do is in no
    /// member's log: who may do nothing shall not have all of their disks at its disposal.
    async fn still_denied(&self, may: impl Fn(&Users, &Principal) -> bool) -> Result<(), Error> {
        self.handle().read_async(replog::ReadLevel::Linearizable, 0).await.map_err(read_error)?;
        may(&self.users(), self.principal()).then_some(()).ok_or_else(denied)
    }

    /// As [`Node::submit_later`]; `may` is asked again of what the state refuses.
    fn submit_if_later(
        &self,
        may: Option<impl Fn(&Users, &Principal) -> bool + Send + Sync + 'static>,
        command: Bytes,
        not_leading: NotLeading,
    ) -> impl Future<Output = Result<Written, Error>> + Send + 'static {
        let Some(may) = may else { return Either::Left(self.submit_later(command, not_leading)) };
        let room = self.room_to_wait(&command);
        let node = self.clone();
        Either::Right(async move {
            let room = room?;
            let is_denied = node.still_denied(may).await;
            drop(room);
            if let Err(error) = is_denied {
                node.counters().write(false);
                return Err(error);
            }
            node.submit_later(command, not_leading).await
        })
    }

    /// What was begun goes on.
    pub(crate) fn submit(&self, begun: &mut Begun) {
        if !begun.0.is_empty() {
            self.handle().propose_all(std::mem::take(&mut begun.0));
        }
    }

    /// As [`Node::write_then`]; who shall not forward is told who leads.
    pub fn write_later(
        &self,
        transaction: Transaction,
        stamp: Option<Stamp>,
        not_leading: NotLeading,
    ) -> impl Future<Output = Result<Written, Error>> + Send + 'static {
        let checked = check(&transaction).map_err(invalid);
        let submitted = checked.map(|()| {
            let is_allowed = self.users().may_write(self.principal(), &transaction);
            let refused = (!is_allowed).then(|| transaction.clone());
            let may = refused.map(|refused| move |users: &Users, who: &Principal| users.may_write(who, &refused));
            self.submit_if_later(may, self.on_behalf(Command::Write(transaction, stamp)), not_leading)
        });
        async { submitted?.await }
    }

    /// A command that says on whose behalf it is, where that matters: earlier releases know nothing of users.
    fn on_behalf(&self, command: Command) -> Bytes {
        let who = self.principal();
        let says = match who {
            Principal::Nobody => false,
            Principal::Process => self.users().is_enabled(),
            Principal::User { .. } => true,
        };
        if says { Command::As(who.clone(), Box::new(command)).encode() } else { command.encode() }
    }

    /// Whether it is asked by somebody who may change users so: for who is about to do much for it.
    pub(crate) async fn may_change_users(&self, change: &UserChange) -> Result<(), Error> {
        let may = |users: &Users, who: &Principal| users.may_change(who, change);
        if may(&self.users(), self.principal()) {
            return Ok(());
        }
        self.still_denied(may).await.map_err(of_administrators)
    }

    /// Changes users, wherever the leader is.
    pub fn change_users(&self, change: UserChange) -> impl Future<Output = Result<Written, Error>> + Send + 'static {
        let checked = change.check().map_err(|mistake| Error::Invalid(mistake.to_string()));
        let submitted = checked.map(|()| {
            let command = Command::Users(self.principal().clone(), change.clone()).encode();
            let is_allowed = self.users().may_change(self.principal(), &change);
            let may = (!is_allowed).then_some(move |users: &Users, who: &Principal| users.may_change(who, &change));
            self.submit_if_later(may, command, NotLeading::Forward)
        });
        async move { submitted?.await.map_err(of_administrators) }
    }

    fn submit_then(
        &self,
        begun: &mut Begun,
        command: Bytes,
        done: impl FnOnce(Result<Written, Error>) -> Option<Waker> + Send + 'static,
    ) {
        let node = self.clone();
        if self.leads() {
            begun.0.push(Proposal::new(command, move |outcome| done(node.written(outcome))));
        } else {
            tell_later(node.forward(command), done);
        }
    }

    /// Who leads has the command in its log before this returns.
    fn submit_later(
        &self,
        command: Bytes,
        not_leading: NotLeading,
    ) -> impl Future<Output = Result<Written, Error>> + Send + 'static {
        let forwards = not_leading == NotLeading::Forward;
        let proposed = (!forwards || self.leads()).then(|| self.handle().propose_async(command.clone()));
        let node = self.clone();
        async move {
            if let Some(proposed) = proposed {
                match proposed.await {
                    // It has lost leadership just now, and nothing has happened.
                    Err(ProposeError::NotLeader(_)) if forwards => {}
                    outcome => return node.written(outcome),
                }
            }
            node.forward(command).await
        }
    }

    pub(super) fn written(&self, outcome: Result<Committed<Reply>, ProposeError>) -> Result<Written, Error> {
        self.counters().write(matches!(&outcome, Ok(Committed { reply: Ok(applied), .. }) if applied.outcome.is_ok()));
        let applied = match outcome {
            Ok(Committed { reply: Ok(applied), .. }) => applied,
            Ok(_) => return Err(Error::UnknownOutcome("the member's state cannot go on".into())),
            Err(error) => return Err(self.propose_error(error)),
        };
        match applied.outcome {
            Ok(results) => Ok(Written { revision: applied.index, term: applied.term, applied: results }),
            Err(refusal) if refusal.passes() => Err(Error::NotNow(refusal.to_string())),
            Err(refusal @ Refusal::NoSession) => Err(Error::NoSession(refusal.to_string())),
            Err(refusal @ Refusal::Forgotten) => Err(Error::Forgotten(refusal.to_string())),
            Err(refusal @ Refusal::Denied) => Err(Error::Denied(refusal.to_string())),
            Err(refusal) => Err(Error::Invalid(refusal.to_string())),
        }
    }

    fn propose_error(&self, error: ProposeError) -> Error {
        match error {
            ProposeError::NotLeader(leader) => Error::NotLeader(self.leader(leader)),
            ProposeError::Busy => Error::Busy,
            ProposeError::TooLarge(bytes) => too_large(bytes),
            ProposeError::Unknown => Error::UnknownOutcome("leadership was lost meanwhile".into()),
            ProposeError::Stopped => Error::Stopped,
        }
    }

    /// As [`Node::session_later`]; `done` as in [`Node::write_then`]: the number of a session that is opened is the revision.
    pub(crate) fn session_then(
        &self,
        begun: &mut Begun,
        close: Option<u64>,
        done: impl FnOnce(Result<Written, Error>) -> Option<Waker> + Send + 'static,
    ) {
        match self.refused_session(close) {
            None => self.submit_then(begun, self.of_session(close), done),
            may => tell_later(self.submit_if_later(may, self.of_session(close), NotLeading::Forward), done),
        }
    }

    fn of_session(&self, close: Option<u64>) -> Bytes {
        self.on_behalf(close.map_or(Command::OpenSession, Command::CloseSession))
    }

    /// What is asked again, where the state refuses to open a session.
    fn refused_session(&self, close: Option<u64>) -> Option<impl Fn(&Users, &Principal) -> bool + Send + Sync + use<>> {
        let may = |users: &Users, who: &Principal| users.may_open_session(who);
        (close.is_none() && !may(&self.users(), self.principal())).then_some(may)
    }

    /// Opens a session, or ends one; its number.
    pub fn session_later(&self, close: Option<u64>) -> impl Future<Output = Result<u64, Error>> + Send + 'static {
        let submitted = self.submit_if_later(self.refused_session(close), self.of_session(close), NotLeading::Forward);
        async move { Ok(close.unwrap_or(submitted.await?.revision)) }
    }

    /// Answers at once, where nothing has to be waited for.
    pub(crate) fn read_now(&self, query: &Query, options: ReadOptions) -> Option<Result<Seen<Answer>, Error>> {
        let ticket = self.handle().try_read(level(options.level), options.at_least)?;
        let view = self.shown().view();
        if is_long_query(&*view.rows, query) {
            return None;
        }
        let found = self.look_at(&view, query);
        self.told(ticket, found)
    }

    /// Reads that wait share one queue: who waits for an index that may never come has few places there.
    fn place_to_wait(&self, options: ReadOptions) -> Result<Option<OwnedSemaphorePermit>, Error> {
        // Most clients ask for no index.
        let waits = options.at_least > 0 && options.at_least > self.shown().view().applied;
        let place = waits.then(|| Arc::clone(&self.0.awaiting).try_acquire_owned()).transpose();
        place.map_err(|_| Error::Busy)
    }

    /// Calls `done` when the state is fresh enough; then [`Node::look_with`]. It must be quick.
    pub(crate) fn read_then(&self, options: ReadOptions, done: impl FnOnce(Result<Ticket, Error>) + Send + 'static) {
        let place = match self.place_to_wait(options) {
            Ok(place) => place,
            Err(error) => return done(Err(error)),
        };
        let ticket = move |ticket: Result<Ticket, ReadError>| {
            drop(place);
            done(ticket.map_err(read_error));
        };
        self.handle().read(level(options.level), options.at_least, ticket);
    }

    /// Answers with a ticket; `None`: it is not worth anything any more. On a tokio runtime.
    pub(crate) async fn look_with(&self, query: &Query, ticket: Ticket) -> Option<Result<Seen<Answer>, Error>> {
        let view = self.shown().view();
        let found = match is_long_query(&*view.rows, query) {
            false => self.look_at(&view, query),
            true => {
                let (node, query) = (self.clone(), query.clone());
                drop(view);
                self.beside(move || node.look_at(&node.shown().view(), &query)).await
            }
        };
        self.told(ticket, found)
    }

    /// After the look: whether what was found may be told.
    fn told(&self, ticket: Ticket, found: Result<Answer, Error>) -> Option<Result<Seen<Answer>, Error>> {
        let is_good = self.handle().confirm(&ticket);
        is_good.then(|| found.map(|answer| self.seen(ticket, answer)))
    }

    /// Looks at much: all other clients of this thread would wait for as long as it takes. Few do so at a time; others wait in line, and take the
    /// state as it is when their turn comes: who keeps an older one keeps what was there in memory.
    async fn beside<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let place = Arc::clone(&self.0.long_looks).acquire_owned().await.map_err(|_| Error::Stopped)?;
        let looked = tokio::task::spawn_blocking(move || {
            // Until it is done, also where nobody waits for it any more.
            let _place = place;
            look()
        });
        looked.await.map_err(|_| Error::Stopped)?
    }

    /// All that begins so, of one moment and linearizable, page by page; `has_more`: there is more than so many bytes. On a tokio runtime.
    pub async fn scan_all(&self, prefix: Bytes, bytes_max: usize) -> Result<Seen<Answer>, Error> {
        let ticket = self.handle().read_async(replog::ReadLevel::Linearizable, 0).await.map_err(read_error)?;
        // What is short does not stand in line behind what is long.
        let short = Query::Scan(Scan { limit: SHORT_SCAN_KEYS, ..Scan::prefix(prefix.clone()) });
        let view = self.shown().view();
        let answer = self.look_at(&view, &short)?;
        if !answer.has_more && bytes_of(&answer.items) <= bytes_max {
            return Ok(Seen { index: view.applied, ..self.seen(ticket, answer) });
        }
        drop(view);
        let node = self.clone();
        let scan = move || {
            let view = node.shown().view();
            Ok((node.scan_at(&view, prefix, bytes_max)?, view.applied))
        };
        let (answer, index) = self.beside(scan).await?;
        Ok(Seen { index, ..self.seen(ticket, answer) })
    }

    fn scan_at(&self, view: &View, prefix: Bytes, bytes_max: usize) -> Result<Answer, Error> {
        let mut page = Scan { limit: u32::MAX, ..Scan::prefix(prefix) };
        let (mut all, mut bytes) = (Answer::default(), 0);
        loop {
            let Answer { items, has_more } = self.look_at(view, &Query::Scan(page.clone()))?;
            page.after = items.last().map(|item| item.key.clone());
            bytes += bytes_of(&items);
            all.items.extend(items);
            all.has_more = bytes > bytes_max;
            if all.has_more || !has_more {
                return Ok(all);
            }
        }
    }

    /// Answers when the state is fresh enough.
    pub fn read_later(
        &self,
        query: Query,
        options: ReadOptions,
    ) -> impl Future<Output = Result<Seen<Answer>, Error>> + Send + 'static {
        let node = self.clone();
        let checked = check_query(&query);
        async move {
            checked?;
            let place = node.place_to_wait(options)?;
            let ticket = node.handle().read_async(level(options.level), options.at_least).await.map_err(read_error)?;
            drop(place);
            if let Some(seen) = node.look_with(&query, ticket).await {
                return seen;
            }
            // The lease has run out meanwhile: a round tells.
            let ticket = node.handle().read_async(replog::ReadLevel::Linearizable, options.at_least).await;
            node.look_with(&query, ticket.map_err(read_error)?).await.unwrap_or(Err(Error::NoQuorum))
        }
    }

    fn look_at(&self, view: &View, query: &Query) -> Result<Answer, Error> {
        check_query(query)?;
        if !view.users.may_read(self.principal(), query) {
            return Err(denied());
        }
        answer(&*view.rows, query).map_err(|error| match error {
            QueryError::TooLarge => Error::Invalid(error.to_string()),
            QueryError::Storage(error) => Error::Failed(error.to_string()),
        })
    }

    /// What was seen with a ticket, which is counted.
    fn seen<T>(&self, ticket: Ticket, value: T) -> Seen<T> {
        let path = match ticket.path {
            replog::ReadPath::ReadIndex => ReadPath::ReadIndex,
            replog::ReadPath::Lease => ReadPath::Lease,
            replog::ReadPath::Age => ReadPath::Age,
            replog::ReadPath::Local => ReadPath::Local,
        };
        self.counters().read(path);
        Seen { value, index: ticket.index, term: ticket.term, path, age_micros: ticket.age_micros }
    }

    /// Begins to watch.
    pub fn watch_now(&self, options: WatchOptions) -> Result<Watching, Error> {
        check_bounds([Some(&options.start), options.end.as_ref()]).map_err(invalid)?;
        // What it was asked with may be a slice of a message of 8 MiB, and would keep it for as long as somebody watches.
        let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let options = WatchOptions { start: own(&options.start), end: options.end.as_ref().map(own), ..options };
        let users = self.shown().users();
        if !self.may_watch(&self.users(), &options) {
            return Err(denied());
        }
        let watcher = self.shown().history.watch(options).map_err(too_old)?;
        Ok(Watching { node: self.clone(), watcher, users })
    }

    fn may_watch(&self, users: &Users, WatchOptions { start, end, .. }: &WatchOptions) -> bool {
        users.may_watch(self.principal(), start, end.as_deref())
    }
}

/// Wakes who waits, if anybody does.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// What who may not is told.
pub(crate) fn denied() -> Error {
    Error::Denied(Refusal::Denied.to_string())
}

/// The same, where no grant would help.
pub(crate) fn denied_but_to_administrators() -> Error {
    Error::Denied("permission denied: only administrators may do that".into())
}

/// What is denied in a change of users is denied to all but administrators.
fn of_administrators(error: Error) -> Error {
    match error {
        Error::Denied(_) => denied_but_to_administrators(),
        error => error,
    }
}

/// Tells what has been written once that is known. On a tokio runtime.
fn tell_later(
    written: impl Future<Output = Result<Written, Error>> + Send + 'static,
    done: impl FnOnce(Result<Written, Error>) -> Option<Waker> + Send + 'static,
) {
    tokio::spawn(async { wake(done(written.await)) });
}

/// Before anything is waited for: what is too much is not held meanwhile, and no storage is asked for what it cannot have.
fn check_query(query: &Query) -> Result<(), Error> {
    let checked = match query {
        Query::GetMany(keys) if keys.len() > KEYS_MAX => {
            return Err(Error::Invalid(format!("more than {KEYS_MAX} keys are asked for at a time")));
        }
        Query::Get(key) => check_key(key),
        Query::GetMany(keys) => keys.iter().try_for_each(|key| check_key(key)),
        Query::Scan(Scan { start, end, after, .. }) => check_bounds([Some(start), end.as_ref(), after.as_ref()]),
    };
    checked.map_err(invalid)
}

fn check_bounds<const N: usize>(bounds: [Option<&Bytes>; N]) -> Result<(), LimitError> {
    bounds.into_iter().flatten().try_for_each(|bound| check_bound(bound))
}

fn invalid(error: LimitError) -> Error {
    Error::Invalid(error.to_string())
}

fn too_old(TooOld(oldest): TooOld) -> Error {
    Error::TooOld(oldest)
}

pub(super) fn too_large(bytes: usize) -> Error {
    Error::Invalid(format!("a command of {bytes} bytes is too large"))
}

pub(super) fn read_error(error: ReadError) -> Error {
    match error {
        ReadError::Busy => Error::Busy,
        ReadError::NoQuorum => Error::NoQuorum,
        ReadError::Stopped => Error::Stopped,
    }
}

fn level(level: ReadLevel) -> replog::ReadLevel {
    match level {
        ReadLevel::Linearizable => replog::ReadLevel::Linearizable,
        ReadLevel::Lease => replog::ReadLevel::Lease,
        ReadLevel::Bounded { max_staleness_micros } => replog::ReadLevel::Bounded { max_staleness_micros },
        ReadLevel::Eventual => replog::ReadLevel::Eventual,
    }
}

/// What somebody is told who may watch. Whether it may is looked at last: users are visible before what was written after their change.
fn told(step: impl FnOnce() -> Result<Step, TooOld>, may_watch: impl FnOnce() -> bool) -> Result<Step, Error> {
    let step = step();
    if may_watch() { step.map_err(too_old) } else { Err(denied()) }
}

/// Somebody who watches.
pub struct Watching {
    node: Node,
    watcher: Watcher,
    users: watch::Receiver<Arc<Users>>,
}

impl Watching {
    /// What has happened since, at once; nothing if nothing has. Who may not be told any more is told that.
    pub fn step(&mut self) -> Result<Step, Error> {
        let Self { node, watcher, .. } = self;
        let options = watcher.options().clone();
        told(|| watcher.step(), || node.may_watch(&node.users(), &options))
    }

    /// Waits until something may have happened.
    pub async fn changed(&mut self) -> Result<(), Error> {
        tokio::select! {
            () = self.watcher.changed() => Ok(()),
            changed = self.users.changed() => changed.map_err(|_| Error::Stopped),
        }
    }

    /// The next events that are wanted: never none.
    pub async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            let step = self.step()?;
            if !step.events.is_empty() {
                return Ok(Batch { events: step.events, index: step.index });
            }
            if !step.has_more {
                self.changed().await?;
            }
        }
    }
}

impl Door for Node {
    fn write(&self, transaction: Transaction, stamp: Option<Stamp>) -> BoxFuture<'_, Result<Written, Error>> {
        Box::pin(self.write_later(transaction, stamp, NotLeading::Forward))
    }

    fn read(&self, query: Query, options: ReadOptions) -> BoxFuture<'_, Result<Seen<Answer>, Error>> {
        match self.read_now(&query, options) {
            Some(answer) => Box::pin(async { answer }),
            None => Box::pin(self.read_later(query, options)),
        }
    }

    fn open_session(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(self.session_later(None))
    }

    fn close_session(&self, session: u64) -> BoxFuture<'_, Result<(), Error>> {
        let closed = self.session_later(Some(session));
        Box::pin(async move { closed.await.map(|_| ()) })
    }

    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<Watch, Error>> {
        Box::pin(async move {
            let mut watching = self.watch_now(options)?;
            // It says from where on nothing is missed.
            let Step { events, index, .. } = watching.step()?;
            let first = futures::stream::iter([Ok(Batch { events, index })]);
            let batches = futures::stream::unfold(Some(watching), |watching| async move {
                let mut watching = watching?;
                match watching.next().await {
                    Ok(batch) => Some((Ok(batch), Some(watching))),
                    Err(error) => Some((Err(error), None)),
                }
            });
            Ok(Watch::of(Box::pin(first.chain(batches))))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn who_watches_is_not_told_what_was_written_after_its_grant_was_revoked() {
        let may_watch = Cell::new(true);
        // The revocation and a put become visible together, just now.
        let step = || {
            may_watch.set(false);
            Ok(Step { events: Vec::new(), index: 7, has_more: false })
        };
        assert_eq!(told(step, || may_watch.get()), Err(denied()));
    }
}
