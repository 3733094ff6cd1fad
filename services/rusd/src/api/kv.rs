//! Keys and values. Order of checks and words of errors are those of etcd's `server/etcdserver/api/v3rpc/{key,quota}.go`.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryFutureExt;
use service_kit::grpc::{self, Code, Requests, Responses, Status, Unary, decode};

use crate::api::{Answer, Api};
use crate::node::{Done, Node};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::range_request::SortTarget;
use crate::proto::mvccpb::KeyValue;
use crate::store::command::Kind;
use crate::store::{Access, Caller, Chunks, Counts, Keys, NewestRevision, View, check, quota};

/// Keys of the first message of a stream of ranges, as in etcd.
const FIRST_CHUNK_KEYS: usize = 10;
/// Keys that a read may look at on its connection's thread: some milliseconds.
pub(super) const QUICK_KEYS: usize = 20_000;

impl Api {
    pub(super) fn range(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::RangeRequest = decode(message)?;
        check::range(&request)?;
        let is_long = !request.range_end.is_empty() && self.node.reader.view().keys_looked_at(&request) > QUICK_KEYS;
        self.look_at_many(is_long, request.serializable, call, move |node, caller, view, term| {
            view.check(caller, Access::Read(Keys::new(&request.key, &request.range_end)))?;
            let found = view.range(&request)?;
            Counts::add(&node.reader.counts().ranges, 1);
            let header = node.header(found.revision, term);
            let bytes_about = found.encoded_len_about();
            grpc::check_answer(bytes_about)?;
            Ok(grpc::encode_with(|out| found.encode(&header, out), bytes_about))
        })
    }

    /// Looks at the state: at once if that is possible, else when a quorum has said that nothing is missing.
    pub(super) fn look(
        &self,
        is_serializable: bool,
        call: &grpc::Caller,
        look: impl Fn(&Node, &Caller, &View, u64) -> Answer + 'static,
    ) -> Result<Unary, Status> {
        let seen = self
            .node
            .look_now(is_serializable, |view, term| look(&self.node, &self.node.caller(call, view)?, view, term));
        if let Some(answer) = seen {
            return Ok(Unary::Now(answer));
        }
        let (node, call) = (Arc::clone(&self.node), call.clone());
        Ok(Unary::Later(Box::pin(async move {
            let (view, ticket) = node.view().await?;
            look(&node, &node.caller(&call, &view)?, &view, ticket.term)
        })))
    }

    /// As [`Api::look`]; aside, if it takes long: other connections of the thread would wait.
    fn look_at_many(
        &self,
        is_long: bool,
        is_serializable: bool,
        call: &grpc::Caller,
        look: impl Fn(&Node, &Caller, &View, u64) -> Answer + Send + 'static,
    ) -> Result<Unary, Status> {
        if !is_long {
            return self.look(is_serializable, call, look);
        }
        let (node, call) = (Arc::clone(&self.node), call.clone());
        Ok(Unary::Later(Box::pin(async move {
            let turn = node.long_reads.turn().await?;
            let (view, term) = newest(&node, is_serializable).await?;
            let caller = node.caller(&call, &view)?;
            let of_thread = Arc::clone(&node);
            turn.run(move || look(&of_thread, &caller, &view, term)).await?
        })))
    }

    pub(super) fn put(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::PutRequest = decode(message.clone())?;
        check::put(&request)?;
        self.node.check_quota(quota::cost_of_put(&request))?;
        Ok(self.propose(call, Access::Put(&request), Kind::Put, &message, |node, done| {
            let (mut response, term) = done.reply::<pb::PutResponse>()?;
            fill(node, &mut response.header, term)?;
            Ok(response)
        }))
    }

    pub(super) fn delete_range(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::DeleteRangeRequest = decode(message.clone())?;
        check::delete_range(&request)?;
        let access = Access::Delete(&request);
        Ok(self.propose(call, access, Kind::DeleteRange, &message, |node, done| {
            let (mut response, term) = done.reply::<pb::DeleteRangeResponse>()?;
            fill(node, &mut response.header, term)?;
            Ok(response)
        }))
    }

    pub(super) fn txn(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::TxnRequest = decode(message.clone())?;
        check::txn(&request, self.node.settings.transaction_operations_max)?;
        if check::is_read_only(&request) {
            let is_long = self.node.reader.view().keys_looked_at_by(&request) > QUICK_KEYS;
            return self.look_at_many(
                is_long,
                check::is_serializable(&request),
                call,
                move |node, caller, view, term| {
                    view.check(caller, Access::Txn(&request))?;
                    let mut response = view.read_only_txn(&request)?;
                    node.reader.counts().txn(&response);
                    fill(node, &mut response.header, term)?;
                    Ok(grpc::encode(&response))
                },
            );
        }
        let cost = quota::cost_of_txn(&request);
        if cost > 0 {
            self.node.check_quota(cost)?;
        }
        Ok(self.propose(call, Access::Txn(&request), Kind::Txn, &message, |node, done| {
            let (mut response, term) = done.reply::<pb::TxnResponse>()?;
            fill(node, &mut response.header, term)?;
            Ok(response)
        }))
    }

    pub(super) fn compact(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::CompactionRequest = decode(message.clone())?;
        if request.physical {
            return self.compact_physically(call, request.revision, message);
        }
        Ok(self.propose(call, Access::Administrate, Kind::Compaction, &message, |node, done| {
            Ok(pb::CompactionResponse { header: header_of(node, done)? })
        }))
    }

    /// Answers when what was compacted is gone, here.
    fn compact_physically(&self, call: &grpc::Caller, revision: i64, message: Bytes) -> Result<Unary, Status> {
        let caller = self.permit(call, Access::Administrate)?;
        let node = Arc::clone(&self.node);
        Ok(Unary::Later(Box::pin(async move {
            let done = node.propose(&caller, Kind::Compaction, &message).await?;
            let header = header_of(&node, done)?;
            node.swept(revision).await?;
            Ok(grpc::encode(&pb::CompactionResponse { header }))
        })))
    }

    /// A range in many messages, all of one state. The first is small, so that it comes soon; the others are about as large as
    /// a request may be.
    pub(super) fn range_stream(
        &self,
        call: grpc::Caller,
        requests: Requests,
        responses: Responses,
    ) -> impl Future<Output = Result<(), Status>> + 'static {
        let node = Arc::clone(&self.node);
        async move {
            let mut request: pb::RangeRequest = decode(requests.only().await?)?;
            check::range_stream(&request)?;
            let (view, term) = newest(&node, request.serializable).await?;
            let keys = request.clone();
            let may_read = |view: &View| {
                view.check(&node.caller(&call, view)?, Access::Read(Keys::new(&keys.key, &keys.range_end)))
            };
            may_read(&view)?;
            let target = SortTarget::try_from(request.sort_target).unwrap_or(SortTarget::Key);
            // What is sorted by its value needs one until then.
            let drops_values = target == SortTarget::Value && std::mem::take(&mut request.keys_only);
            let is_much = view.keys_looked_at_by_chunks(&request) > QUICK_KEYS;
            drop(view);
            // The view goes with it: a client that does not read holds nothing of what was.
            let mut chunks = node.look_again(is_much, may_read, move |view| view.chunks(request)).await??;
            Counts::add(&node.reader.counts().ranges, 1);
            let mut keys = FIRST_CHUNK_KEYS;
            loop {
                let (rest, next) = next_chunk(&node, &responses, chunks, keys).await?;
                chunks = rest;
                let Some(mut chunk) = next else { return Ok(()) };
                sort(target, &mut chunk.kvs);
                if drops_values {
                    chunk.kvs.iter_mut().for_each(|kv| kv.value.clear());
                }
                if chunk.header.is_some() {
                    fill(&node, &mut chunk.header, term)?;
                }
                let message = grpc::encode(&pb::RangeStreamResponse { range_response: Some(chunk) });
                keys = match message.len() {
                    small if small < node.settings.request_bytes_max / 2 => keys * 2,
                    large if large > node.settings.request_bytes_max * 2 => (keys / 2).max(1),
                    _ => keys,
                };
                responses.send_counted(message).await?;
            }
        }
    }
}

/// The next chunk of so many keys, when the client has room for it; aside, if it takes long.
async fn next_chunk(
    node: &Node,
    responses: &Responses,
    mut chunks: Chunks,
    keys: usize,
) -> Result<(Chunks, Option<pb::RangeResponse>), Status> {
    loop {
        responses.turn().await;
        let view = node.reader.view();
        if chunks.keys_passed_over(&view) <= QUICK_KEYS {
            let next = chunks.next_chunk(&view, keys)?;
            return Ok((chunks, next));
        }
        drop(view);
        let turn = node.long_reads.turn().await?;
        // Other streams may have taken the room meanwhile.
        if responses.is_turn() {
            let view = node.reader.view();
            let next = turn.run(move || chunks.next_chunk(&view, keys).map(|next| (chunks, next)));
            return Ok(next.await??);
        }
    }
}

/// The state to read from, and the term.
async fn newest(node: &Node, is_serializable: bool) -> Result<(View, u64), Status> {
    match node.look_now(is_serializable, |view, term| (view.clone(), term)) {
        Some(seen) => Ok(seen),
        None => node.view().map_ok(|(view, ticket)| (view, ticket.term)).await,
    }
}

/// Without an order, a target other than the key means ascending; of a stream, etcd sorts each message by itself.
fn sort(target: SortTarget, kvs: &mut [KeyValue]) {
    match target {
        SortTarget::Key => {}
        SortTarget::Version => kvs.sort_by_key(|kv| kv.version),
        SortTarget::Create => kvs.sort_by_key(|kv| kv.create_revision),
        SortTarget::Mod => kvs.sort_by_key(|kv| kv.mod_revision),
        SortTarget::Value => kvs.sort_by(|a, b| a.value.cmp(&b.value)),
    }
}

/// Says who answers in a header that the store began.
pub(super) fn fill(node: &Node, header: &mut Option<pb::ResponseHeader>, term: u64) -> Result<(), Status> {
    *header = Some(node.header(header_of_store(*header)?.revision, term));
    Ok(())
}

/// The header that the store began, as it does in every reply.
pub(super) fn header_of_store(header: Option<pb::ResponseHeader>) -> Result<pb::ResponseHeader, Status> {
    debug_assert!(header.is_some(), "a reply of the store has a header");
    header.ok_or_else(|| Status::new(Code::Internal, "the store's reply says no revision"))
}

/// The header of an answer that has nothing else to say.
pub(super) fn header_of(node: &Node, done: Done) -> Result<Option<pb::ResponseHeader>, Status> {
    let (NewestRevision(revision), term) = done.reply()?;
    Ok(Some(node.header(revision, term)))
}
