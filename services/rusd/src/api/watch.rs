//! Watches. From etcd's `server/etcdserver/api/v3rpc/watch.go`.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use service_kit::grpc::{self, Requests, Responses, Status, decode};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::api::Api;
use crate::node::Node;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::watch_request::RequestUnion;
use crate::store::watch::Hub;
use crate::store::{Access, Error, Keys};
use crate::watches::Watching;

/// Messages, and bytes, after which other streams of the thread have their turn. All of a turn go as one piece: what HTTP/2 does for
/// each piece costs more than what a small message costs.
const MESSAGES_A_TURN: usize = 32;
const BYTES_A_TURN: usize = 32 << 10;

impl Api {
    pub(super) fn watch(
        &self,
        call: grpc::Caller,
        mut requests: Requests,
        responses: Responses,
    ) -> impl Future<Output = Result<(), Status>> + 'static {
        let node = Arc::clone(&self.node);
        let watching = self.watches.open();
        let mut room = match requests.room() {
            Some(of_connection) => WatchersRoom::OfConnection(of_connection),
            None => WatchersRoom::AsJson(self.gateway_memory().room(), 0),
        };
        let mut lost = Box::pin(self.leader_is_lost(&call));
        async move {
            // Clients wait for the head of the answer before they go on.
            if responses.open().is_err() {
                return Ok(());
            }
            let mut has_ended = false;
            let mut progress = Progress::new(node.settings.watch_progress_interval);
            loop {
                loop {
                    responses.turn().await;
                    let Some((frames, is_all)) = turn(&node, &watching) else { break };
                    responses.send_counted(frames).await?;
                    if is_all {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                let may_ask = !has_ended && watching.wants_requests();
                room.shrink(watching.bytes());
                tokio::select! {
                    biased;
                    request = requests.next(), if may_ask => match request? {
                        Some(message) => act(&node, &call, &watching, &mut room, &mut progress, decode(message)?),
                        // The client has said everything, and goes on listening.
                        None => has_ended = true,
                    },
                    () = watching.ready() => {}
                    () = &mut lost => return Err(Error::NoLeader.into()),
                    () = progress.tick() => watching.ask(|hub, id| hub.notify_progress(id)),
                }
            }
        }
    }
}

/// What is to be said next, as far as it fits into one turn, and whether that is all. `None`: nothing.
fn turn(node: &Node, watching: &Watching) -> Option<(Bytes, bool)> {
    let (mut frames, mut said, mut is_all) = (BytesMut::new(), 0, false);
    while said < MESSAGES_A_TURN && frames.len() < BYTES_A_TURN {
        let Some(response) = watching.next() else {
            is_all = true;
            break;
        };
        let header = node.header(response.revision, node.term());
        grpc::append_with(&mut frames, |out| response.encode(&header, out), response.encoded_len_about());
        said += 1;
    }
    (said > 0).then(|| (frames.freeze(), is_all))
}

fn act(
    node: &Node,
    call: &grpc::Caller,
    watching: &Watching,
    room: &mut WatchersRoom,
    progress: &mut Progress,
    request: pb::WatchRequest,
) {
    match request.request_union {
        Some(RequestUnion::CreateRequest(request)) => {
            let view = node.reader.view();
            let key: &[u8] = if request.key.is_empty() { &[0] } else { &request.key };
            let access = Access::Read(Keys::new(key, &request.range_end));
            let permitted = node.caller(call, &view).and_then(|caller| view.check(&caller, access));
            let has_room = permitted.is_ok() && room.grow(watching.bytes() + Hub::bytes_of(&request));
            if request.progress_notify && has_room {
                progress.begin();
            }
            watching.ask(|hub, id| match permitted {
                Ok(()) if has_room => hub.create(id, &request),
                Ok(()) => hub.refuse(id, NO_ROOM),
                Err(error) => hub.refuse(id, error.message()),
            });
        }
        Some(RequestUnion::CancelRequest(request)) => watching.ask(|hub, id| hub.cancel(id, request.watch_id)),
        Some(RequestUnion::ProgressRequest(_)) => watching.ask(|hub, id| hub.request_progress(id)),
        None => {}
    }
}

/// As a watcher is refused whose keys there is no room for.
const NO_ROOM: &str = "rusd: no room for a watcher: calls and watchers of a connection may take 64 MiB together, and all 192 MiB; cancel some, or \
                       watch ranges";

/// What the watchers of a stream take: of the connection's room, or of that of bodies as JSON.
enum WatchersRoom {
    OfConnection(grpc::Kept),
    AsJson(grpc::Room, usize),
}

impl WatchersRoom {
    /// Whether there is room for so much. What is refused later is given back by the next [`WatchersRoom::shrink`].
    fn grow(&mut self, bytes: usize) -> bool {
        match self {
            Self::OfConnection(kept) => kept.resize(bytes).is_ok(),
            Self::AsJson(room, taken) => {
                let has_room = room.grow(bytes.saturating_sub(*taken));
                *taken = if has_room { bytes.max(*taken) } else { *taken };
                has_room
            }
        }
    }

    /// Gives back what is not taken any more.
    fn shrink(&mut self, bytes: usize) {
        match self {
            // To give back always succeeds.
            Self::OfConnection(kept) => drop(kept.resize(bytes)),
            Self::AsJson(room, taken) => {
                room.shrink(taken.saturating_sub(bytes));
                *taken = bytes.min(*taken);
            }
        }
    }
}

/// The clock of periodic progress; most streams need none.
struct Progress {
    every: Duration,
    interval: Option<Interval>,
}

impl Progress {
    fn new(every: Duration) -> Self {
        // As in etcd: not more often.
        Self { every: every.max(Duration::from_millis(100)), interval: None }
    }

    fn begin(&mut self) {
        self.interval.get_or_insert_with(|| {
            let mut interval = interval_at(Instant::now() + self.every, self.every);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
    }

    async fn tick(&mut self) {
        match &mut self.interval {
            Some(interval) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }
}
