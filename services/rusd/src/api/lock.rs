//! Locks. From etcd's `server/etcdserver/api/v3lock/lock.go` and `client/v3/concurrency/mutex.go`.

use bytes::Bytes;
use service_kit::grpc::{self, Status, Unary, decode};

use crate::api::session::{
    Place, Session, created_at, delete_of, key_of, one_by_creation, operation, prefix_of, put_of, range_of, read_by,
    unknown,
};
use crate::api::{Api, Method, kv};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::request_op::Request as Operation;
use crate::proto::v3lockpb;

impl Api {
    /// Waits until everybody who came before has gone.
    pub(super) fn lock(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: v3lockpb::LockRequest = decode(message)?;
        let session = self.session(call);
        Ok(Unary::Later(Box::pin(async move { Ok(grpc::encode(&locked(&session, &request).await?)) })))
    }

    pub(super) fn unlock(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: v3lockpb::UnlockRequest = decode(message)?;
        let session = self.session(call);
        Ok(Unary::Later(Box::pin(async move {
            let deleted: pb::DeleteRangeResponse = session.ask(Method::DeleteRange, &delete_of(&request.key)).await?;
            Ok(grpc::encode(&v3lockpb::UnlockResponse { header: deleted.header }))
        })))
    }
}

async fn locked(session: &Session, request: &v3lockpb::LockRequest) -> Result<v3lockpb::LockResponse, Status> {
    let lease = session.lease(request.lease).await?;
    let prefix = prefix_of(&request.name);
    let key = key_of(&prefix, lease);
    let owner = || operation(Operation::RequestRange(one_by_creation(&prefix)));
    let txn = pb::TxnRequest {
        compare: vec![created_at(&key, 0)],
        success: vec![operation(Operation::RequestPut(put_of(&key, Bytes::new(), lease))), owner()],
        // The same lease may ask again.
        failure: vec![operation(Operation::RequestRange(range_of(&key))), owner()],
    };
    let begun: pb::TxnResponse = session.ask(Method::Txn, &txn).await?;
    let own = match begun.succeeded {
        true => kv::header_of_store(begun.header)?.revision,
        false => read_by(&begun, 0).map_or(0, |kv| kv.create_revision),
    };
    if read_by(&begun, 1).is_none_or(|owner| owner.create_revision == own) {
        return Ok(v3lockpb::LockResponse { header: begun.header, key });
    }
    let place = Place::new(session, &key, own);
    session.wait_for_older(&prefix, own - 1).await?;
    let still: pb::RangeResponse = session.ask(Method::Range, &range_of(&key)).await?;
    if still.kvs.is_empty() {
        return Err(unknown("mutex: session is expired"));
    }
    place.keep();
    Ok(v3lockpb::LockResponse { header: still.header, key })
}
