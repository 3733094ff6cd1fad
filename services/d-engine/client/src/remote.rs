//! A store far away: finds the leader, keeps one stream to each member that it talks to, and sends what waits together.
//!
//! What is sent again is told at [`Client::connect`](crate::Client::connect). A member that does not answer is left: what may be repeated is
//! asked of the next one after a part of its time, and everything else hears of it when the connection has been silent for too long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::Shared;
use tokio::time::{Instant, sleep, timeout_at};

use crate::door::{BoxFuture, Door};
use crate::grpc::{Answers, Channel, GrpcError, Questions, address_by};
use crate::link::Link;
use crate::wire::{self, request::Body};
use crate::{
    Answer, Batch, Credentials, Error, Query, ReadLevel, ReadOptions, Seen, Stamp, Tls, Transaction, Watch,
    WatchOptions, Written, deadline_in,
};

const WATCH: &str = "/storebench.dengine.v1.Store/Watch";

/// Before somebody else is asked, where nobody is named.
const RETRY: Duration = Duration::from_millis(20);
/// What may be repeated is asked of so many members within its time, one after the other, where none answers.
const ATTEMPTS: u32 = 3;
/// For so long after it could not be reached a member is asked only if there is no other.
const AWAY: Duration = Duration::from_millis(500);

/// How patient a client is.
#[derive(Clone, Debug)]
pub struct Options {
    /// For a connection.
    pub connect_timeout: Duration,
    /// For an answer, with all that is tried for it.
    pub request_timeout: Duration,
    /// Whether nobody is talked to but the members at the addresses that were given, which hand writes to the leader: for clients that
    /// cannot reach where members say that they are. Else writes and strong reads go to the leader, as soon as it is known.
    pub only_given: bool,
    /// TLS, for members that speak nothing else.
    pub tls: Option<Tls>,
    /// Who it is, for members that ask for users.
    pub credentials: Option<Credentials>,
}

impl Default for Options {
    fn default() -> Self {
        let (connect_timeout, request_timeout) = (Duration::from_secs(1), Duration::from_secs(3));
        Self { connect_timeout, request_timeout, only_given: false, tls: None, credentials: None }
    }
}

impl Options {
    async fn channel(&self, address: &str) -> Result<Channel, GrpcError> {
        let channel = Channel::connect_with(address, self.tls.as_ref()).await?;
        Ok(channel.signed_in(self.credentials.as_ref()))
    }
}

/// A stream that is there, or is being opened by whoever wanted it first; or when it could not be, and why.
type Opening = Shared<BoxFuture<'static, Result<Arc<Link>, (GrpcError, Instant)>>>;

/// Whether a request may be sent again when nobody knows what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// It is done once, however often it is sent.
    Freely,
    /// It would be done twice.
    Never,
}

/// A store far away.
pub(crate) struct Remote {
    endpoints: Vec<String>,
    options: Options,
    links: Mutex<HashMap<String, Opening>>,
    leader: Mutex<Option<String>>,
    turn: AtomicUsize,
}

impl Remote {
    pub(crate) async fn connect(endpoints: &[String], options: Options) -> Result<Self, Error> {
        let by = options.tls.as_ref();
        let plain = |endpoint: &String| address_by(endpoint, by).map(str::to_owned).map_err(Error::Invalid);
        let remote = Self {
            endpoints: endpoints.iter().map(plain).collect::<Result<_, _>>()?,
            options,
            links: Mutex::default(),
            leader: Mutex::default(),
            turn: AtomicUsize::new(0),
        };
        let mut problem = "no address was given".to_owned();
        for endpoint in &remote.endpoints {
            match remote.link(endpoint).await {
                Ok(_) => return Ok(remote),
                Err(error) => problem = error.to_string(),
            }
        }
        Err(Error::Unreachable(problem))
    }

    fn links(&self) -> MutexGuard<'_, HashMap<String, Opening>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leader(&self) -> MutexGuard<'_, Option<String>> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses that were given, the one whose turn it is first, those behind that nothing has come from lately. To these a way is
    /// opened meanwhile, so that nobody has to wait to learn that one answers again.
    fn in_turn(&self) -> Vec<&String> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.endpoints.len().max(1);
        let (before, from) = self.endpoints.split_at(turn);
        let links = self.links();
        let (mut ready, others): (Vec<_>, Vec<_>) =
            from.iter().chain(before).partition(|&address| is_ready(links.get(address)));
        drop(links);
        for address in &others {
            if !self.is_away(address) {
                drop(self.open(address));
            }
        }
        ready.extend(others);
        ready
    }

    /// Whom to ask next, if possible another one than this.
    fn another(&self, than: Option<&str>) -> String {
        let all = self.in_turn();
        let other = all.iter().find(|&&address| Some(address.as_str()) != than);
        other.or(all.first()).map(|&address| address.clone()).unwrap_or_default()
    }

    /// Whether one of the members that were given answers.
    fn is_any_ready(&self) -> bool {
        let links = self.links();
        self.endpoints.iter().any(|address| is_ready(links.get(address)))
    }

    /// Whether it is known that nobody answers at this address just now.
    fn is_away(&self, address: &str) -> bool {
        match self.links().get(address).and_then(|opening| opening.peek()) {
            Some(Ok(link)) => !link.is_closed() && link.is_quiet(),
            Some(Err((_, at))) => at.elapsed() < AWAY,
            None => false,
        }
    }

    /// The stream to this address. It is opened once, however many want it.
    fn open(&self, address: &str) -> Opening {
        let mut links = self.links();
        if let Some(opening) = links.get(address)
            && opening.peek().is_none_or(|opened| opened.as_ref().is_ok_and(|link| !link.is_closed()))
        {
            return opening.clone();
        }
        let (endpoint, options) = (address.to_owned(), self.options.clone());
        let opening = async move {
            let deadline = deadline_in(options.connect_timeout);
            let opened = timeout_at(deadline, async { Link::open(options.channel(&endpoint).await?).await }).await;
            let late = GrpcError::Connect(format!("{endpoint}: no answer within {:?}", options.connect_timeout));
            opened.unwrap_or(Err(late)).map(Arc::new).map_err(|error| (error, Instant::now()))
        };
        let opening = opening.boxed().shared();
        links.insert(address.to_owned(), opening.clone());
        // Also if who wanted it gives up.
        tokio::spawn(opening.clone());
        opening
    }

    async fn link(&self, address: &str) -> Result<Arc<Link>, GrpcError> {
        self.open(address).await.map_err(|(error, _)| error)
    }

    /// Sends a request until somebody takes it, and waits for the reply. Also what was lost is sent again, if it may be repeated; then the
    /// outcome is unknown for as long as no reply says what it is.
    async fn call(&self, body: Body, wants_leader: bool, repeat: Repeat) -> Result<wire::Reply, Error> {
        let deadline = deadline_in(self.options.request_timeout);
        let known = self.leader().clone().filter(|leader| wants_leader && !self.is_away(leader));
        let mut target = known.unwrap_or_else(|| self.another(None));
        // Members that could not be reached, one after the other.
        let mut away = 0;
        let mut lost = None;
        // What a member that lives has said says more than that another is not there.
        let mut said = None;
        loop {
            let until = match repeat {
                Repeat::Freely => deadline.min(deadline_in(self.options.request_timeout / ATTEMPTS)),
                Repeat::Never => deadline,
            };
            let error = match timeout_at(until, self.attempt(&target, body.clone())).await {
                Err(_) => Error::UnknownOutcome(format!("{target}: no answer came in time")),
                Ok(Ok(reply)) => match refusal(&reply) {
                    None => {
                        self.learn(&reply.leader_address);
                        return Ok(reply);
                    }
                    Some(error) => error,
                },
                Ok(Err(error)) => error,
            };
            let next = match &error {
                Error::NotLeader(leader) => leader.as_ref().map(|leader| leader.address.clone()),
                Error::Busy | Error::NotNow(_) => Some(target.clone()),
                Error::NoQuorum | Error::Unreachable(_) | Error::Failed(_) | Error::Stopped => None,
                Error::UnknownOutcome(_) => {
                    self.forget(&target);
                    if repeat == Repeat::Never {
                        return Err(error);
                    }
                    lost = Some(error.clone());
                    None
                }
                // That nothing has happened is true of the last attempt alone.
                _ => return Err(lost.unwrap_or(error)),
            };
            let next = next.filter(|address| !address.is_empty() && self.may_ask(address) && !self.is_away(address));
            let is_named = matches!(&error, Error::NotLeader(_)) && next.is_some();
            away = if matches!(&error, Error::Unreachable(_)) { away + 1 } else { 0 };
            if wants_leader {
                *self.leader() = next.clone();
            }
            target = next.unwrap_or_else(|| self.another(Some(&target)));
            match &error {
                Error::NotLeader(None) | Error::NoQuorum | Error::Busy | Error::NotNow(_) | Error::Failed(_) => {
                    said = Some(error.clone());
                }
                _ => {}
            }
            if Instant::now() + RETRY >= deadline {
                let told = said.filter(|_| matches!(&error, Error::Unreachable(_)));
                return Err(lost.or(told).unwrap_or(error));
            }
            // Who cannot be reached keeps nobody from asking the next one, until all have been asked.
            let is_next = away > 0 && away <= self.endpoints.len();
            if !is_named && !is_next {
                sleep(RETRY).await;
            }
        }
    }

    /// A member lost what it was given: if it led, another one does soon.
    fn forget(&self, member: &str) {
        self.leader().take_if(|leader| leader == member);
    }

    fn may_ask(&self, address: &str) -> bool {
        !self.options.only_given || self.endpoints.iter().any(|endpoint| endpoint == address)
    }

    /// A member has said who leads.
    fn learn(&self, leader: &str) {
        if !leader.is_empty() && !self.options.only_given {
            *self.leader() = Some(leader.to_owned());
        }
    }

    async fn attempt(&self, target: &str, body: Body) -> Result<wire::Reply, Error> {
        let link = self.link(target).await.map_err(|error| Error::Unreachable(error.to_string()))?;
        link.call(body).await
    }
}

/// Whether there is a stream, the other end of which answers.
fn is_ready(opening: Option<&Opening>) -> bool {
    let known = opening.and_then(|opening| opening.peek());
    known.is_some_and(|known| known.as_ref().is_ok_and(|link| !link.is_closed() && !link.is_quiet()))
}

/// A reply after which somebody else may be asked.
fn refusal(reply: &wire::Reply) -> Option<Error> {
    match &reply.body {
        Some(wire::reply::Body::Error(error)) => Some(error.clone().parse()),
        _ => None,
    }
}

impl Door for Remote {
    fn write(&self, transaction: Transaction, stamp: Option<Stamp>) -> BoxFuture<'_, Result<Written, Error>> {
        let is_done_once = stamp.is_some() || transaction.changes_nothing_twice();
        let repeat = if is_done_once { Repeat::Freely } else { Repeat::Never };
        let body = Body::Write(wire::Write::of(transaction, stamp));
        Box::pin(async move { self.call(body, true, repeat).await?.into_written() })
    }

    fn read(&self, query: Query, options: ReadOptions) -> BoxFuture<'_, Result<Seen<Answer>, Error>> {
        // Others take a round where the leader has a lease.
        let wants_leader = matches!(options.level, ReadLevel::Lease | ReadLevel::Linearizable);
        let body = Body::Read(wire::Read::of(query, options));
        Box::pin(async move {
            match self.call(body, wants_leader, Repeat::Freely).await {
                Ok(reply) => reply.into_seen(),
                // Nothing happens by a read. Who answers pings, and not this, looks for others.
                Err(Error::UnknownOutcome(_)) if wants_leader && self.is_any_ready() => Err(Error::NoQuorum),
                Err(Error::UnknownOutcome(why)) => Err(Error::Unreachable(why)),
                Err(error) => Err(error),
            }
        })
    }

    fn open_session(&self) -> BoxFuture<'_, Result<u64, Error>> {
        // One that nobody knows of ends by itself.
        let body = Body::OpenSession(wire::OpenSession {});
        Box::pin(async move { self.call(body, true, Repeat::Freely).await?.into_session() })
    }

    fn close_session(&self, session: u64) -> BoxFuture<'_, Result<(), Error>> {
        let body = Body::CloseSession(wire::CloseSession { session });
        Box::pin(async move { self.call(body, true, Repeat::Freely).await?.into_session().map(|_| ()) })
    }

    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<Watch, Error>> {
        Box::pin(async move {
            let request = wire::WatchRequest::of(options);
            let mut problem = Error::Unreachable("no address was given".into());
            for address in self.in_turn() {
                let opened = async {
                    let channel = self.options.channel(address).await?;
                    let (questions, mut answers) = channel.stream(WATCH, &request, true).await?;
                    // The first answer says that nothing is missed from here on.
                    let first: Option<wire::Events> = answers.next().await?;
                    Ok::<_, GrpcError>((questions, first, answers))
                };
                match tokio::time::timeout(self.options.connect_timeout, opened).await {
                    Ok(Ok((questions, first, answers))) => return Ok(events(questions, first, answers)),
                    Ok(Err(error)) => match error.denied() {
                        Some(denied) => return Err(denied),
                        None => problem = Error::Unreachable(error.to_string()),
                    },
                    Err(_) => {
                        problem = Error::Unreachable(format!(
                            "{address}: no answer within {:?}",
                            self.options.connect_timeout
                        ))
                    }
                }
            }
            Err(problem)
        })
    }
}

fn events(
    questions: Questions<wire::WatchRequest>,
    first: Option<wire::Events>,
    answers: Answers<wire::Events>,
) -> Watch {
    enum Step {
        First(Option<wire::Events>),
        Later,
        Over,
    }
    let state = (Step::First(first), answers, questions);
    Watch::of(Box::pin(futures::stream::unfold(state, |(step, mut answers, questions)| async move {
        let batch = match step {
            Step::Over => return None,
            Step::First(first) => first,
            Step::Later => match answers.next().await {
                Ok(batch) => batch,
                Err(error) => {
                    return Some((Err(Error::Unreachable(error.to_string())), (Step::Over, answers, questions)));
                }
            },
        }?;
        if let Some(error) = batch.error {
            return Some((Err(error.parse()), (Step::Over, answers, questions)));
        }
        let events = batch.events.into_iter().map(wire::Event::parse).collect();
        Some((Ok(Batch { events, index: batch.index }), (Step::Later, answers, questions)))
    })))
}
