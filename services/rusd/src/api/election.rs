//! Elections. From etcd's `server/etcdserver/api/v3election/election.go` and `client/v3/concurrency/election.go`.

use bytes::Bytes;
use service_kit::grpc::{self, Requests, Responses, Status, Unary, decode};

use crate::api::session::{
    Place, Session, created_at, end_of, is_delete, key_of, one_by_creation, operation, prefix_of, put_of, range_of,
    read_by, unknown, withdrawal,
};
use crate::api::{Api, Method, kv};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::request_op::Request as Operation;
use crate::proto::mvccpb::KeyValue;
use crate::proto::v3electionpb as election;

const NOT_LEADER: &str = "election: not leader";
const NO_LEADER: &str = "election: no leader";
const NO_LEADER_KEY: &str = "\"leader\" field must be provided";

impl Api {
    /// Waits until everybody who came before has gone.
    pub(super) fn campaign(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: election::CampaignRequest = decode(message)?;
        let session = self.session(call);
        Ok(Unary::Later(Box::pin(async move { Ok(grpc::encode(&elected(&session, request).await?)) })))
    }

    /// Changes what the leader says.
    pub(super) fn proclaim(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: election::ProclaimRequest = decode(message)?;
        let session = self.session(call);
        Ok(Unary::Later(Box::pin(async move {
            let leader = request.leader.ok_or_else(|| unknown(NO_LEADER_KEY))?;
            let header = proclaimed(&session, &leader, request.value).await?;
            Ok(grpc::encode(&election::ProclaimResponse { header }))
        })))
    }

    pub(super) fn resign(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: election::ResignRequest = decode(message)?;
        let session = self.session(call);
        Ok(Unary::Later(Box::pin(async move {
            let leader = request.leader.ok_or_else(|| unknown(NO_LEADER_KEY))?;
            let resigned: pb::TxnResponse = session.ask(Method::Txn, &withdrawal(&leader.key, leader.rev)).await?;
            Ok(grpc::encode(&election::ResignResponse { header: resigned.header }))
        })))
    }

    pub(super) fn leader(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: election::LeaderRequest = decode(message)?;
        let session = self.session(call);
        Ok(Unary::Later(Box::pin(async move {
            let found: pb::RangeResponse =
                session.ask(Method::Range, &one_by_creation(&prefix_of(&request.name))).await?;
            let kv = found.kvs.into_iter().next().ok_or_else(|| unknown(NO_LEADER))?;
            Ok(grpc::encode(&election::LeaderResponse { header: found.header, kv: Some(kv) }))
        })))
    }

    /// Tells every leader, and everything that one proclaims.
    pub(super) fn observe(
        &self,
        call: grpc::Caller,
        requests: Requests,
        responses: Responses,
    ) -> impl Future<Output = Result<(), Status>> + 'static {
        let session = self.session(&call);
        async move {
            let request: election::LeaderRequest = decode(requests.only().await?)?;
            if responses.open().is_err() {
                return Ok(());
            }
            let prefix = prefix_of(&request.name);
            loop {
                let (mut header, leader) = next_leader(&session, &prefix).await?;
                let mut watch = session.watch(leader.key.clone(), Bytes::new(), leader.mod_revision + 1);
                let mut said = vec![leader];
                let mut has_gone = false;
                while !has_gone {
                    for kv in said.drain(..) {
                        header.revision = header.revision.max(kv.mod_revision);
                        let response = election::LeaderResponse { header: Some(header), kv: Some(kv) };
                        if responses.send(grpc::encode(&response)).await.is_err() {
                            return Ok(());
                        }
                    }
                    for event in watch.next().await? {
                        has_gone |= is_delete(&event);
                        said.extend(event.kv.filter(|_| !has_gone));
                    }
                }
            }
        }
    }
}

/// Who leads now; waits until somebody does.
async fn next_leader(session: &Session, prefix: &Bytes) -> Result<(pb::ResponseHeader, KeyValue), Status> {
    let found: pb::RangeResponse = session.ask(Method::Range, &one_by_creation(prefix)).await?;
    let header = kv::header_of_store(found.header)?;
    if let Some(leader) = found.kvs.into_iter().next() {
        return Ok((header, leader));
    }
    let mut watch = session.watch(prefix.clone(), end_of(prefix), header.revision);
    loop {
        let put = watch.next().await?.into_iter().find(|event| !is_delete(event)).and_then(|event| event.kv);
        if let Some(leader) = put {
            return Ok((pb::ResponseHeader { revision: leader.mod_revision, ..header }, leader));
        }
    }
}

async fn elected(session: &Session, request: election::CampaignRequest) -> Result<election::CampaignResponse, Status> {
    let election::CampaignRequest { name, lease, value } = request;
    let lease = session.lease(lease).await?;
    let prefix = prefix_of(&name);
    let key = key_of(&prefix, lease);
    let txn = pb::TxnRequest {
        compare: vec![created_at(&key, 0)],
        success: vec![operation(Operation::RequestPut(put_of(&key, value.clone(), lease)))],
        failure: vec![operation(Operation::RequestRange(range_of(&key)))],
    };
    let begun: pb::TxnResponse = session.ask(Method::Txn, &txn).await?;
    let earlier = read_by(&begun, 0).filter(|_| !begun.succeeded);
    let rev = match earlier {
        Some(kv) => kv.create_revision,
        None => kv::header_of_store(begun.header)?.revision,
    };
    let place = Place::new(session, &key, rev);
    let leader = election::LeaderKey { name, key, rev, lease };
    if earlier.is_some_and(|kv| kv.value != value) {
        proclaimed(session, &leader, value).await?;
    }
    session.wait_for_older(&prefix, rev - 1).await?;
    place.keep();
    Ok(election::CampaignResponse { header: begun.header, leader: Some(leader) })
}

async fn proclaimed(
    session: &Session,
    leader: &election::LeaderKey,
    value: Bytes,
) -> Result<Option<pb::ResponseHeader>, Status> {
    let txn = pb::TxnRequest {
        compare: vec![created_at(&leader.key, leader.rev)],
        success: vec![operation(Operation::RequestPut(put_of(&leader.key, value, leader.lease)))],
        failure: Vec::new(),
    };
    let done: pb::TxnResponse = session.ask(Method::Txn, &txn).await?;
    if done.succeeded { Ok(done.header) } else { Err(unknown(NOT_LEADER)) }
}
