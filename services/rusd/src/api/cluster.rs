//! Members.

use bytes::Bytes;
use prost::Message;

use crate::api::kv::header_of;
use crate::api::{Api, decode, refuse};
use crate::flags::Url;
use crate::grpc::{self, Status, Unary};
use crate::proto::etcdserverpb as pb;
use crate::store::command::Kind;
use crate::store::{Access, Caller, Error};

impl Api {
    pub(super) fn member_list(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::MemberListRequest = decode(message)?;
        self.look(!request.linearizable, call, |node, caller, view, term| {
            view.check(caller, Access::Authenticated)?;
            let header = Some(node.header(view.revision(), term));
            Ok(grpc::encode(&pb::MemberListResponse {
                header,
                members: view.cluster.members.values().cloned().collect(),
            }))
        })
    }

    /// Changes where other members find one.
    pub(super) fn member_update(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::MemberUpdateRequest = decode(message)?;
        self.permit(call, Access::Administrate)?;
        let view = self.node.reader.view();
        if request.peer_ur_ls.is_empty() || request.peer_ur_ls.iter().any(|url| Url::parse("", url).is_err()) {
            return Ok(refuse(Error::MemberBadUrls));
        }
        let Some(member) = view.cluster.members.get(&request.id) else { return Ok(refuse(Error::MemberNotFound)) };
        let others = view.cluster.members.values().filter(|other| other.id != request.id);
        if others.flat_map(|other| &other.peer_ur_ls).any(|url| request.peer_ur_ls.contains(url)) {
            return Ok(refuse(Error::PeerUrlExists));
        }
        let member = pb::Member { peer_ur_ls: request.peer_ur_ls, ..member.clone() };
        Ok(self.propose_as(&Caller::Server, Kind::MemberSet, &member.encode_to_vec(), |node, done| {
            let members = node.reader.view().cluster.members.values().cloned().collect();
            pb::MemberUpdateResponse { header: Some(header_of(node, &done)), members }
        }))
    }
}
