//! Members. From etcd's `server/etcdserver/{server.go,api/v3rpc/member.go}`.
//!
//! What the group decides stands in the store; the log's membership follows it ([`crate::group`]), and the answer waits for that.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use replog::Membership;
use service_kit::grpc::{self, Status, Unary, decode};
use tokio::time::timeout;

use crate::api::kv::header_of;
use crate::api::{Api, refuse};
use crate::flags;
use crate::measured::Measured;
use crate::node::{Done, Node, now_millis};
use crate::proto::etcdserverpb as pb;
use crate::settings::member_id;
use crate::store::command::{Kind, MemberRemoval};
use crate::store::{Access, Caller, Error};

impl Api {
    pub(super) fn member_list(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::MemberListRequest = decode(message)?;
        self.look(!request.linearizable, call, |node, caller, view, term| {
            view.check(caller, Access::Authenticated)?;
            let header = Some(node.header(view.revision(), term));
            Ok(grpc::encode(&pb::MemberListResponse { header, members: members(node) }))
        })
    }

    pub(super) fn member_add(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::MemberAddRequest = decode(message)?;
        if !are_urls(&request.peer_ur_ls) {
            return Ok(refuse(Error::MemberBadUrls));
        }
        self.permit(call, Access::Administrate)?;
        self.node.group.may_add(&self.node.settings, request.is_learner)?;
        let id = member_id(request.peer_ur_ls.clone(), &(now_millis() / 1000).to_string());
        let member =
            pb::Member { id, peer_ur_ls: request.peer_ur_ls, is_learner: request.is_learner, ..Default::default() };
        let is_in = move |membership: &Membership| membership.all().contains(&id);
        Ok(self.change(Kind::MemberAdd, &member.encode_to_vec(), is_in, |node, header| {
            grpc::encode(&pb::MemberAddResponse { header, member: Some(member), members: members(node) })
        }))
    }

    pub(super) fn member_remove(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let pb::MemberRemoveRequest { id } = decode(message)?;
        self.permit(call, Access::Administrate)?;
        if !self.node.reader.view().cluster.members.contains_key(&id) {
            return Ok(refuse(Error::MemberNotFound));
        }
        self.node.group.may_remove(&self.node.settings, id)?;
        // Who removes itself does not wait until it is out: it ends then.
        let own = self.node.member_id;
        let is_out = move |membership: &Membership| id == own || !membership.all().contains(&id);
        let removal = MemberRemoval { id, keeps_a_voter: true };
        Ok(self.change(Kind::MemberRemove, &removal.encode_to_vec(), is_out, |node, header| {
            grpc::encode(&pb::MemberRemoveResponse { header, members: members(node) })
        }))
    }

    pub(super) fn member_promote(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let pb::MemberPromoteRequest { id } = decode(message.clone())?;
        self.permit(call, Access::Administrate)?;
        let view = self.node.reader.view();
        let member = view.cluster.members.get(&id).ok_or(Error::MemberNotFound)?;
        if !member.is_learner {
            return Ok(refuse(Error::MemberNotLearner));
        }
        let node = Arc::clone(&self.node);
        let votes = move |membership: &Membership| membership.voters.contains(&id);
        Ok(Unary::Later(Box::pin(async move {
            let caught_up = timeout(node.patience(), node.group.check_caught_up(id));
            caught_up.await.map_err(|_| Error::Timeout)??;
            node.group.may_promote(&node.settings)?;
            let header = change(&node, Kind::MemberPromote, &message, votes).await?;
            Measured::add(&node.measured.learners_promoted);
            Ok(grpc::encode(&pb::MemberPromoteResponse { header, members: members(&node) }))
        })))
    }

    /// Changes where other members find one.
    pub(super) fn member_update(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::MemberUpdateRequest = decode(message.clone())?;
        self.permit(call, Access::Administrate)?;
        if !are_urls(&request.peer_ur_ls) {
            return Ok(refuse(Error::MemberBadUrls));
        }
        Ok(self.change(
            Kind::MemberUpdate,
            &message,
            |_| true,
            |node, header| grpc::encode(&pb::MemberUpdateResponse { header, members: members(node) }),
        ))
    }

    /// Decides a change, and answers when it was carried out.
    fn change(
        &self,
        kind: Kind,
        request: &[u8],
        is_wanted: impl Fn(&Membership) -> bool + 'static,
        answer: impl FnOnce(&Node, Option<pb::ResponseHeader>) -> Bytes + 'static,
    ) -> Unary {
        let (node, request) = (Arc::clone(&self.node), request.to_vec());
        Unary::Later(Box::pin(async move {
            let header = change(&node, kind, &request, is_wanted).await?;
            Ok(answer(&node, header))
        }))
    }
}

async fn change(
    node: &Node,
    kind: Kind,
    request: &[u8],
    is_wanted: impl Fn(&Membership) -> bool,
) -> Result<Option<pb::ResponseHeader>, Status> {
    let done: Done = node.propose(&Caller::Server, kind, request).await?;
    timeout(node.patience(), node.group.membership_is(is_wanted)).await.map_err(|_| Error::Timeout)?;
    header_of(node, done)
}

fn members(node: &Node) -> Vec<pb::Member> {
    node.reader.view().cluster.members.values().cloned().collect()
}

fn are_urls(urls: &[String]) -> bool {
    !urls.is_empty() && urls.iter().all(|url| flags::url("", url).is_ok())
}
