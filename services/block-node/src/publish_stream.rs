//! One publisher's stream: items become a verified block, step by step, and the publisher is told what [`crate::publish`] decides.
//!
//! A publisher that does not read its answers is not read from either; one that must wait for room keeps what it sent last and
//! nothing more.

use std::cell::Cell;
use std::future::pending;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use service_kit::grpc::{Code, Requests, Responses, Status, append_with};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{sleep_until, timeout};

use crate::block::{Builder, BuilderError, HEADER_FIELD};
use crate::budget::Budget;
use crate::clients::Call;
use crate::messages::{EndCode, EndStreamCode, PublishRequest, PublishResponse, item_ranges, items};
use crate::node::{Node, OnItsWay};
use crate::publish::{ACKNOWLEDGEMENTS_MAX, PublisherId, Publishing, Room, Verdict};
use crate::wire::Fields;

/// More than this is hashed on a thread of its own, and after so many bytes others have their turn, so that other clients of this one need
/// not wait.
const AT_ONCE_BYTES: usize = 256 << 10;
/// So often it is told that something comes of a block: a block of which nothing comes may take some tens of seconds.
const PIECES_APART: Duration = Duration::from_secs(1);
/// No more than this is read before an answer is written.
const BEHIND_ANSWER_BYTES: usize = 32 << 10;

/// Answers a publishBlockStream of this client.
pub async fn publish(
    node: Arc<Node>,
    (call, client): (Rc<Call>, String),
    requests: Requests,
    responses: Responses,
) -> Result<(), Status> {
    let publishers_max = node.settings.publishers_max;
    let mut session = Session::join(node, &client, publishers_max)?;
    let bell = Arc::clone(&session.bell);
    let mut requests = session.hears_pieces_of(requests);
    if responses.open().is_err() {
        return Ok(());
    }
    let mut waiting = None;
    let mut must_look = true;
    let mut read_bytes = 0;
    // What its client has taken by other streams is waited for, too: no block is begun, and nobody waits for this one.
    let (mut budget, mut is_counted, mut paused_until) = (Budget::default(), true, call.paid());
    loop {
        if session.has_asked.take() || must_look {
            must_look = false;
            match tell(&session, &responses).await? {
                Told::Over => return Ok(()),
                // It is written when this task waits; more to read is often there before.
                Told::Something => read_bytes = read_bytes.max(AT_ONCE_BYTES - BEHIND_ANSWER_BYTES),
                Told::Nothing => {}
            }
        }
        if let Some(work) = waiting.take() {
            waiting = session.work(work).await;
            if waiting.is_none() {
                continue;
            }
        }
        if !std::mem::replace(&mut is_counted, true) {
            let is_within_block = session.is_within_block();
            // Within a block everybody waits: what it has cost is waited for behind it.
            let paid = if is_within_block { None } else { call.paid() };
            paused_until = session.node.count(&mut budget, is_within_block).max(paid);
        }
        if read_bytes >= AT_ONCE_BYTES {
            read_bytes = 0;
            yield_now().await;
        }
        tokio::select! {
            biased;
            () = bell.notified() => must_look = true,
            // Meanwhile others of its streams may have taken more.
            () = until(paused_until), if paused_until.is_some() => {
                paused_until = if session.is_within_block() { None } else { call.paid() };
            }
            request = requests.next(), if waiting.is_none() && paused_until.is_none() => match request? {
                None => return Ok(()),
                Some(message) => {
                    read_bytes += message.len();
                    is_counted = false;
                    match session.request(&message) {
                        Next::Work(work) => waiting = Some(work),
                        Next::Nothing => {}
                        Next::End => return Ok(()),
                    }
                }
            },
        }
    }
}

async fn until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

/// What was sent to a publisher.
enum Told {
    Nothing,
    Something,
    /// The stream is over.
    Over,
}

/// Sends what there is to tell, to a client that takes it.
async fn tell(session: &Session, responses: &Responses) -> Result<Told, Status> {
    let mut result = Told::Nothing;
    loop {
        let told = session.node.publishing(|publishing| publishing.take(session.id));
        if told.is_empty() {
            return Ok(result);
        }
        // Or there may be more, which is looked for behind these; what comes later rings the bell.
        let is_all = told.len() < ACKNOWLEDGEMENTS_MAX as usize;
        let era = session.node.settings.wire_era;
        let is_over = told.last().is_some_and(|response| response.ends_stream(era));
        let mut frames = BytesMut::new();
        for response in told {
            session.node.metrics.told(&response);
            let root = match response {
                // A block that was safe a moment ago; should it be damaged since, the acknowledgement goes without.
                PublishResponse::Acknowledgement(number) if era.acknowledges_root() => {
                    session.node.read(number).await.ok().map(|block| block.root)
                }
                _ => None,
            };
            let message = response.encode(era, root);
            append_with(&mut frames, |out| out.extend_from_slice(&message), message.len());
        }
        let patience = session.node.settings.subscriber_timeout;
        let Ok(sent) = timeout(patience, responses.send(frames.freeze())).await else {
            let text = format!("what a publisher is told was not taken within {patience:?}");
            return Err(Status::new(Code::DeadlineExceeded, text));
        };
        if sent.is_err() || is_over {
            return Ok(Told::Over);
        }
        result = Told::Something;
        if is_all {
            return Ok(result);
        }
    }
}

/// Something that must be done before more is read.
enum Work {
    /// The header of this block wants its slot. It is the item that stands there in the set that begins the block.
    Begin(u64, Range<usize>, Bytes),
    /// A set wants room, and then its items from here on to be hashed.
    Items(Bytes, usize),
    /// The block is whole.
    End(u64),
}

/// What a request asks for.
enum Next {
    Work(Work),
    Nothing,
    End,
}

/// What is known of the block that is being sent.
enum Building {
    /// None is.
    Between,
    /// Nobody wants it.
    Ignoring,
    /// It is taken. None: somebody works on it.
    Taking(Option<Box<Builder>>),
}

struct Session {
    node: Arc<Node>,
    id: PublisherId,
    bell: Arc<Notify>,
    /// It has said or asked something, and may have an answer: the bell does not ring for that.
    has_asked: Cell<bool>,
    building: Building,
    began: Instant,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.node.leave(self.id);
    }
}

impl Session {
    fn join(node: Arc<Node>, client: &str, publishers_max: usize) -> Result<Self, Status> {
        let message = "as many publishers as --publishers-max allows are connected";
        let (id, bell) = node.join(client, publishers_max).ok_or(Status::new(Code::ResourceExhausted, message))?;
        let (building, has_asked) = (Building::Between, Cell::new(true));
        Ok(Self { node, id, bell, has_asked, building, began: Instant::now() })
    }

    /// A block is not late as long as something comes of it, however long its messages are.
    fn hears_pieces_of(&self, requests: Requests) -> Requests {
        let (node, id, told) = (Arc::clone(&self.node), self.id, Cell::new(Instant::now()));
        requests.telling_of_pieces(move || {
            if told.get().elapsed() >= PIECES_APART {
                told.set(Instant::now());
                let now = node.now_micros();
                node.publishing_as(id, |publishing| publishing.moves(id, now));
            }
        })
    }

    fn is_within_block(&self) -> bool {
        matches!(self.building, Building::Taking(_))
    }

    fn publishing<T>(&self, act: impl FnOnce(&mut Publishing<OnItsWay>) -> T) -> T {
        self.has_asked.set(true);
        self.node.publishing_as(self.id, act)
    }

    fn refuse(&mut self, code: EndCode, why: &dyn std::fmt::Display) {
        tracing::warn!(publisher = self.id, ?code, "a publisher is refused: {why}");
        self.building = Building::Ignoring;
        self.publishing(|publishing| publishing.refuse(self.id, code));
    }

    fn request(&mut self, message: &Bytes) -> Next {
        match PublishRequest::of(message) {
            Ok(PublishRequest::Items(range)) => self.items(message.slice(range)),
            Ok(PublishRequest::EndOfBlock(number)) => self.end(number),
            Ok(PublishRequest::EndStream { code, earliest, latest }) => {
                match code {
                    EndStreamCode::Reset => tracing::info!(publisher = self.id, "a publisher is done with its stream"),
                    _ => {
                        tracing::info!(publisher = self.id, ?code, earliest, latest, "a publisher gives its stream up")
                    }
                }
                Next::End
            }
            Err(error) => {
                self.refuse(EndCode::InvalidRequest, &error);
                Next::Nothing
            }
        }
    }

    fn end(&mut self, number: u64) -> Next {
        match &self.building {
            Building::Taking(_) => Next::Work(Work::End(number)),
            Building::Ignoring => {
                self.building = Building::Between;
                Next::Nothing
            }
            Building::Between => {
                self.refuse(EndCode::InvalidRequest, &"an end of a block that was not begun");
                Next::Nothing
            }
        }
    }

    fn items(&mut self, set: Bytes) -> Next {
        let first = match item_ranges(&set).next() {
            None => return Next::Nothing,
            Some(Ok((_, item))) => item,
            Some(Err(error)) => {
                self.refuse(EndCode::InvalidRequest, &error);
                return Next::Nothing;
            }
        };
        let is_header =
            matches!(Fields::of(&set[first.clone()]).next(), Some(Ok(field)) if field.number == HEADER_FIELD);
        match (&self.building, is_header) {
            (Building::Taking(_), false) => Next::Work(Work::Items(set, 0)),
            (Building::Ignoring, false) => Next::Nothing,
            (Building::Between | Building::Ignoring, true) => {
                self.began = Instant::now();
                // No more is read or hashed before it is known that somebody wants it: of several publishers all but one send it in vain.
                match Builder::number_of(&set[first.clone()]) {
                    Ok(number) => Next::Work(Work::Begin(number, first, set)),
                    Err(error) => {
                        self.refuse(EndCode::BadBlockProof, &error);
                        Next::Nothing
                    }
                }
            }
            (Building::Between, false) => {
                self.refuse(EndCode::InvalidRequest, &"items without a header before them");
                Next::Nothing
            }
            (Building::Taking(_), true) => {
                self.refuse(EndCode::InvalidRequest, &"a header before the end of the block");
                Next::Nothing
            }
        }
    }

    /// Does what can be done now; what comes back must wait for a change.
    async fn work(&mut self, work: Work) -> Option<Work> {
        match work {
            Work::Begin(number, header, set) => {
                let now = self.node.now_micros();
                match self.publishing(|publishing| publishing.header(self.id, number, now)) {
                    Verdict::Wait => return Some(Work::Begin(number, header, set)),
                    Verdict::Ignore => {
                        self.building = Building::Ignoring;
                        return None;
                    }
                    Verdict::Take => {}
                }
                match Builder::begin(&set[header.clone()], self.node.block_limits()) {
                    Ok(builder) => self.building = Building::Taking(Some(Box::new(builder))),
                    Err(error) => {
                        self.refuse(EndCode::BadBlockProof, &error);
                        return None;
                    }
                }
                self.keep(set, header.end).await
            }
            Work::Items(set, from) => self.keep(set, from).await,
            Work::End(number) => {
                self.finish(number);
                None
            }
        }
    }

    /// Hashes items of a set from here on, as soon as there is room for all of it.
    async fn keep(&mut self, set: Bytes, from: usize) -> Option<Work> {
        let now = self.node.now_micros();
        match self.publishing(|publishing| publishing.reserve(self.id, set.len(), now)) {
            Room::Wait => return Some(Work::Items(set, from)),
            Room::Lost => self.building = Building::Ignoring,
            Room::Granted => self.add(set.slice(from..)).await,
        }
        None
    }

    async fn add(&mut self, set: Bytes) {
        let Building::Taking(builder) = &mut self.building else { return };
        let Some(builder) = builder.take() else { return };
        let add = move |set: &[u8]| add_all(builder, set);
        let added = match set.len() {
            ..=AT_ONCE_BYTES => add(&set),
            _ => {
                self.hashes(true);
                let added = aside(move || add(&set)).await;
                self.hashes(false);
                added
            }
        };
        match added {
            Ok(builder) => {
                let (number, is_proven) = (builder.number(), builder.is_proven());
                self.building = Building::Taking(Some(builder));
                if is_proven && !self.node.settings.wire_era.has_end_of_block() {
                    self.finish(number);
                }
            }
            Err(error) => self.refuse(EndCode::BadBlockProof, &error),
        }
    }

    fn hashes(&self, is_hashed: bool) {
        let now = self.node.now_micros();
        self.node.publishing_as(self.id, |publishing| publishing.hashes(self.id, is_hashed, now));
    }

    fn finish(&mut self, number: u64) {
        let building = std::mem::replace(&mut self.building, Building::Between);
        let Building::Taking(Some(builder)) = building else { return };
        if builder.number() != number {
            let why = format!("the end of block {number} within block {}", builder.number());
            return self.refuse(EndCode::InvalidRequest, &why);
        }
        let received = Instant::now();
        // Its items are hashed, and the packer compresses it: what is left to do is little, however large it is.
        let verified = builder.finish(&self.node.proof_rules());
        match verified.and_then(|verified| Ok(OnItsWay::new(verified, received)?)) {
            Ok(block) => {
                self.has_asked.set(true);
                self.node.offer(self.id, block, self.began);
            }
            Err(error) => self.refuse(EndCode::BadBlockProof, &error),
        }
    }
}

/// A publisher within this process: blocks that the node has fetched come in by the same rules as all others.
pub struct Fed(Session);

/// What became of a part of a block that was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// It was taken, or somebody else sends this block: go on.
    Goes,
    /// Something else than the next part is wanted now: begin again with the block behind the last one that is safe.
    Stands,
    /// The block is wrong, or comes too slowly.
    Refused,
}

impl Fed {
    /// Joins the publishers, however many there are.
    pub fn join(node: Arc<Node>) -> Result<Self, Status> {
        Session::join(node, "", usize::MAX).map(Self)
    }

    /// The next items of a block, the first of which is its header.
    pub async fn items(&mut self, set: Bytes) -> Fetched {
        let next = self.0.items(set);
        self.go(next).await
    }

    /// The block is whole.
    pub async fn end(&mut self, number: u64) -> Fetched {
        let next = self.0.end(number);
        self.go(next).await
    }

    async fn go(&mut self, next: Next) -> Fetched {
        let mut waiting = match next {
            Next::Work(work) => Some(work),
            Next::Nothing | Next::End => None,
        };
        loop {
            if let Some(work) = waiting.take() {
                waiting = self.0.work(work).await;
            }
            let told = self.told();
            if told != Fetched::Goes || waiting.is_none() {
                return told;
            }
            self.0.bell.notified().await;
        }
    }

    fn told(&self) -> Fetched {
        let mut result = Fetched::Goes;
        loop {
            let told = self.0.node.publishing(|publishing| publishing.take(self.0.id));
            if told.is_empty() {
                return result;
            }
            for response in told {
                match response {
                    PublishResponse::Acknowledgement(_) | PublishResponse::Skip(_) => {}
                    PublishResponse::EndOfStream {
                        code: EndCode::BadBlockProof | EndCode::InvalidRequest | EndCode::Timeout,
                        ..
                    } => return Fetched::Refused,
                    PublishResponse::Behind(_) | PublishResponse::Resend(_) | PublishResponse::EndOfStream { .. } => {
                        result = Fetched::Stands
                    }
                }
            }
        }
    }
}

fn add_all(mut builder: Box<Builder>, set: &[u8]) -> Result<Box<Builder>, BuilderError> {
    builder.expect(set.len());
    for item in items(set) {
        builder.add(item?)?;
    }
    Ok(builder)
}

/// Runs something long on a thread of its own.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BuilderError> + Send + 'static,
) -> Result<T, BuilderError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The server has stopped: nobody waits any more.
            Err(_) => std::future::pending().await,
        },
    }
}
