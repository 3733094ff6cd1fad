//! A store far away: finds the leader, keeps one stream to each member that it talks to, and sends what waits together.
//!
//! What is sent again: reads; and writes that nobody has taken. A write that was sent and not answered is
//! [`Error::UnknownOutcome`], and is left to a [`crate::Session`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use crate::door::{BoxFuture, Door};
use crate::grpc::{Answers, Channel, GrpcError, Questions};
use crate::wire::{self, request::Body};
use crate::{
    Answer, Credentials, Error, Event, Query, ReadLevel, ReadOptions, Seen, Stamp, Tls, Transaction, Watch,
    WatchOptions, Written,
};

const OPERATE: &str = "/storebench.dengine.v1.Store/Operate";
const WATCH: &str = "/storebench.dengine.v1.Store/Watch";

/// Before somebody else is asked, where nobody is named.
const RETRY: Duration = Duration::from_millis(20);
/// How long the reason may take why nothing can be sent any more.
const LAST_WORD: Duration = Duration::from_millis(200);
/// Requests that wait to be sent on a stream.
const WAITING_MAX: usize = 4096;
/// Requests of one frame.
const FRAME_REQUESTS_MAX: usize = 1024;

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

/// A store far away.
pub(crate) struct Remote {
    endpoints: Vec<String>,
    options: Options,
    links: Mutex<HashMap<String, Arc<Link>>>,
    leader: Mutex<Option<String>>,
    turn: AtomicUsize,
}

impl Remote {
    pub(crate) async fn connect(endpoints: &[String], options: Options) -> Result<Self, Error> {
        let scheme = if options.tls.is_some() { "https://" } else { "http://" };
        let plain = |endpoint: &String| endpoint.trim_start_matches(scheme).trim_end_matches('/').to_owned();
        let remote = Self {
            endpoints: endpoints.iter().map(plain).collect(),
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

    fn links(&self) -> MutexGuard<'_, HashMap<String, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leader(&self) -> MutexGuard<'_, Option<String>> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next of the addresses that were given.
    fn any(&self) -> String {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.endpoints.get(turn % self.endpoints.len().max(1)).cloned().unwrap_or_default()
    }

    async fn link(&self, address: &str) -> Result<Arc<Link>, GrpcError> {
        if let Some(link) = self.links().get(address).filter(|link| !link.is_closed()) {
            return Ok(Arc::clone(link));
        }
        let deadline = Instant::now() + self.options.connect_timeout;
        let opened = timeout_at(deadline, Link::open(address, &self.options)).await;
        let link = Arc::new(opened.unwrap_or_else(|_| Err(GrpcError::Connect(format!("{address}: timed out"))))?);
        self.links().insert(address.to_owned(), Arc::clone(&link));
        Ok(link)
    }

    /// Sends a request until somebody takes it, and waits for the reply. What `may_repeat` is sent again also where it was lost.
    async fn call(&self, body: Body, wants_leader: bool, may_repeat: bool) -> Result<wire::Reply, Error> {
        let deadline = Instant::now() + self.options.request_timeout;
        let known = self.leader().clone().filter(|_| wants_leader);
        let mut target = known.unwrap_or_else(|| self.any());
        // Members that could not be reached, one after the other.
        let mut away = 0;
        loop {
            let error = match timeout_at(deadline, self.attempt(&target, body.clone())).await {
                Err(_) if may_repeat => return Err(Error::Unreachable("no answer came in time".into())),
                Err(_) => return Err(Error::UnknownOutcome("no answer came in time".into())),
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
                Error::Busy | Error::NotNow(_) | Error::NoQuorum => Some(target.clone()),
                Error::Unreachable(_) | Error::Failed(_) | Error::Stopped => None,
                Error::UnknownOutcome(_) if may_repeat => None,
                Error::UnknownOutcome(_) => {
                    self.forget(&target);
                    return Err(error);
                }
                _ => return Err(error),
            };
            let next = next.filter(|address| !address.is_empty() && self.may_ask(address));
            let is_named = matches!(&error, Error::NotLeader(_)) && next.is_some();
            away = if matches!(&error, Error::Unreachable(_)) { away + 1 } else { 0 };
            if wants_leader {
                *self.leader() = next.clone();
            }
            target = next.unwrap_or_else(|| self.any());
            if Instant::now() + RETRY >= deadline {
                return Err(error);
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

/// A reply after which somebody else may be asked.
fn refusal(reply: &wire::Reply) -> Option<Error> {
    match &reply.body {
        Some(wire::reply::Body::Error(error)) => Some(error.clone().parse()),
        _ => None,
    }
}

impl Door for Remote {
    fn write(&self, transaction: Transaction, stamp: Option<Stamp>) -> BoxFuture<'_, Result<Written, Error>> {
        let body = Body::Write(wire::Write::of(transaction, stamp));
        Box::pin(async move { self.call(body, true, false).await?.into_written() })
    }

    fn read(&self, query: Query, options: ReadOptions) -> BoxFuture<'_, Result<Seen<Answer>, Error>> {
        // Others take a round where the leader has a lease.
        let wants_leader = matches!(options.level, ReadLevel::Lease | ReadLevel::Linearizable);
        let body = Body::Read(wire::Read::of(query, options));
        Box::pin(async move { self.call(body, wants_leader, true).await?.into_seen() })
    }

    fn open_session(&self) -> BoxFuture<'_, Result<u64, Error>> {
        // One that nobody knows of ends by itself.
        let body = Body::OpenSession(wire::OpenSession {});
        Box::pin(async move { self.call(body, true, true).await?.into_session() })
    }

    fn close_session(&self, session: u64) -> BoxFuture<'_, Result<(), Error>> {
        let body = Body::CloseSession(wire::CloseSession { session });
        Box::pin(async move { self.call(body, true, true).await?.into_session().map(|_| ()) })
    }

    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<Watch, Error>> {
        Box::pin(async move {
            let request = wire::WatchRequest::of(options);
            let mut problem = Error::Unreachable("no address was given".into());
            for _ in &self.endpoints {
                let address = self.any();
                let opened = async {
                    let channel = self.options.channel(&address).await?;
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
                    Err(_) => problem = Error::Unreachable(format!("{address}: timed out")),
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
        let events: Vec<Event> = batch.events.into_iter().map(wire::Event::parse).collect();
        Some((Ok(events), (Step::Later, answers, questions)))
    })))
}

type Waiter = oneshot::Sender<Result<wire::Reply, Error>>;

/// A stream to a member.
struct Link {
    requests: mpsc::Sender<(Body, Waiter)>,
    waiting: Arc<Mutex<Waiting>>,
}

/// Who waits for replies.
#[derive(Default)]
struct Waiting {
    waiters: HashMap<u64, Waiter>,
    is_closed: bool,
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells everybody that nobody knows.
fn close(waiting: &Mutex<Waiting>, why: Error) {
    let mut waiting = lock(waiting);
    waiting.is_closed = true;
    for (_, waiter) in waiting.waiters.drain() {
        // Who waits no longer does not want to know.
        let _ = waiter.send(Err(why.clone()));
    }
}

fn lost(error: &GrpcError) -> Error {
    Error::UnknownOutcome(error.to_string())
}

impl Link {
    async fn open(address: &str, options: &Options) -> Result<Self, GrpcError> {
        let channel = options.channel(address).await?;
        let (questions, answers) = channel.stream(OPERATE, &wire::Requests::default(), false).await?;
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (requests, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(write(receiver, questions, Arc::clone(&waiting)));
        tokio::spawn(read(answers, Arc::clone(&waiting)));
        Ok(Self { requests, waiting })
    }

    fn is_closed(&self) -> bool {
        lock(&self.waiting).is_closed
    }

    async fn call(&self, body: Body) -> Result<wire::Reply, Error> {
        let (waiter, reply) = oneshot::channel();
        let sent = self.requests.send((body, waiter)).await;
        sent.map_err(|_| Error::Unreachable("the connection has ended".into()))?;
        reply.await.unwrap_or_else(|_| Err(Error::UnknownOutcome("the connection has ended".into())))
    }
}

async fn write(
    mut requests: mpsc::Receiver<(Body, Waiter)>,
    mut questions: Questions<wire::Requests>,
    waiting: Arc<Mutex<Waiting>>,
) {
    let mut next_id = 0;
    let mut taken = Vec::with_capacity(FRAME_REQUESTS_MAX);
    while requests.recv_many(&mut taken, FRAME_REQUESTS_MAX).await > 0 {
        let mut frame = wire::Requests::default();
        {
            let mut waiting = lock(&waiting);
            if waiting.is_closed {
                for (_, waiter) in taken.drain(..) {
                    let _ = waiter.send(Err(Error::Unreachable("the connection has ended".into())));
                }
                return;
            }
            for (body, waiter) in taken.drain(..) {
                next_id += 1;
                waiting.waiters.insert(next_id, waiter);
                frame.requests.push(wire::Request { id: next_id, body: Some(body) });
            }
        }
        if let Err(error) = questions.send(&frame).await {
            // Who reads hears why, most of the time.
            sleep(LAST_WORD).await;
            return close(&waiting, lost(&error));
        }
    }
    // The client was dropped: nobody waits.
}

async fn read(mut answers: Answers<wire::Replies>, waiting: Arc<Mutex<Waiting>>) {
    loop {
        match answers.next().await {
            Ok(Some(frame)) => {
                let mut waiting = lock(&waiting);
                for reply in frame.replies {
                    if let Some(waiter) = waiting.waiters.remove(&reply.id) {
                        let _ = waiter.send(Ok(reply));
                    }
                }
            }
            Ok(None) => return close(&waiting, Error::UnknownOutcome("the member has ended the stream".into())),
            Err(error) => return close(&waiting, error.denied().unwrap_or_else(|| lost(&error))),
        }
    }
}
