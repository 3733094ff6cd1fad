//! Who the members are, in both dialects. Members are those that the group was founded with: changes are refused.

use bytes::Bytes;
use d_engine_client::proto::d_engine::client::{MembershipSnapshot, WatchMembershipRequest};
use d_engine_client::proto::d_engine::common as new_words;
use d_engine_client::proto::d_engine::server::cluster as new;
use d_engine_client::proto::raft::cluster as old;
use d_engine_client::proto::raft::common as old_words;
use service_kit::grpc::{self, Code, Requests, Responses, Status, Unary};

use super::{Doors, decode, gone, now, only};
use crate::engine::Node;

const FIXED: &str = "members are fixed: those that the group was founded with";

/// Its methods, named alike in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Changes the members.
    UpdateClusterConf,
    /// Who they are.
    GetClusterMetadata,
    /// Adds one.
    JoinCluster,
    /// Who leads.
    DiscoverLeader,
}

impl Method {
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "UpdateClusterConf" => Some(Self::UpdateClusterConf),
            "GetClusterMetadata" => Some(Self::GetClusterMetadata),
            "JoinCluster" => Some(Self::JoinCluster),
            "DiscoverLeader" => Some(Self::DiscoverLeader),
            _ => None,
        }
    }
}

/// What a member knows of the group.
struct Known {
    leader: Option<u64>,
    term: u64,
    members: Vec<(u64, String)>,
}

fn known(node: &Node) -> Known {
    let leadership = *node.leadership().borrow();
    // A leader that has not applied an entry of its own term yet is not shown: it may not know all that was acknowledged.
    let is_hidden = leadership.leader == Some(node.options().id) && !leadership.is_ready_leader;
    let leader = leadership.leader.filter(|_| !is_hidden);
    let members = node.options().members.iter().map(|(id, address)| (*id, address.client.clone())).collect();
    Known { leader, term: leadership.term, members }
}

/// Member numbers have 32 bits in these dialects; the server starts with no other.
fn small(id: u64) -> u32 {
    u32::try_from(id).unwrap_or_default()
}

fn leader(node: &Node) -> Result<(u32, String, u64), Status> {
    let Known { leader, term, members } = known(node);
    let found = leader.and_then(|leader| members.into_iter().find(|(id, _)| *id == leader));
    let (id, address) = found.ok_or_else(|| Status::new(Code::Unavailable, "there is no leader"))?;
    Ok((small(id), address, term))
}

pub(super) fn first(doors: &Doors, method: Method, message: Bytes) -> Result<Unary, Status> {
    let node = &doors.node;
    Ok(match method {
        Method::GetClusterMetadata => {
            let old::MetadataRequest {} = decode(message)?;
            let Known { leader, members, .. } = known(node);
            let meta = |(id, address): (u64, String)| {
                let leads = leader == Some(id);
                let role = if leads { old_words::NodeRole::Leader } else { old_words::NodeRole::Follower };
                let status = old_words::NodeStatus::Active.into();
                old::NodeMeta { id: small(id), address, role: role.into(), status }
            };
            now(Ok(old::ClusterMembership { version: 1, nodes: members.into_iter().map(meta).collect() }))
        }
        Method::DiscoverLeader => {
            let old::LeaderDiscoveryRequest { .. } = decode(message)?;
            let said = leader(node);
            now(said.map(|(leader_id, leader_address, term)| old::LeaderDiscoveryResponse {
                leader_id,
                leader_address,
                term,
            }))
        }
        Method::JoinCluster => {
            let old::JoinRequest { .. } = decode(message)?;
            let leader_id = known(node).leader.map_or(0, small);
            now(Ok(old::JoinResponse { error: FIXED.into(), leader_id, ..old::JoinResponse::default() }))
        }
        Method::UpdateClusterConf => {
            let request: old::ClusterConfChangeRequest = decode(message)?;
            let why = match node.handle().leader().1 {
                true => old::cluster_conf_update_response::ErrorCode::InvalidChange,
                false => old::cluster_conf_update_response::ErrorCode::NotLeader,
            };
            let (id, term) = (request.id, known(node).term);
            now(Ok(old::ClusterConfUpdateResponse { id, term, version: 1, success: false, error_code: why.into() }))
        }
    })
}

pub(super) fn second(doors: &Doors, method: Method, message: Bytes) -> Result<Unary, Status> {
    let node = &doors.node;
    Ok(match method {
        Method::GetClusterMetadata => {
            let new::MetadataRequest {} = decode(message)?;
            let Known { leader, members, .. } = known(node);
            let meta = |(id, address): (u64, String)| {
                let leads = leader == Some(id);
                let role = if leads { new_words::NodeRole::Leader } else { new_words::NodeRole::Follower };
                let status = new_words::NodeStatus::Active.into();
                new::NodeMeta { id: small(id), address, role: role.into(), status }
            };
            let nodes = members.into_iter().map(meta).collect();
            now(Ok(new::ClusterMembership { version: 1, nodes, current_leader_id: leader.map(small) }))
        }
        Method::DiscoverLeader => {
            let new::LeaderDiscoveryRequest { .. } = decode(message)?;
            let said = leader(node);
            now(said.map(|(leader_id, leader_address, term)| new::LeaderDiscoveryResponse {
                leader_id,
                leader_address,
                term,
            }))
        }
        Method::JoinCluster => {
            let new::JoinRequest { .. } = decode(message)?;
            let leader_id = known(node).leader.map_or(0, small);
            now(Ok(new::JoinResponse { error: FIXED.into(), leader_id, ..new::JoinResponse::default() }))
        }
        Method::UpdateClusterConf => {
            let request: new::ClusterConfChangeRequest = decode(message)?;
            let why = match node.handle().leader().1 {
                true => new::cluster_conf_update_response::ErrorCode::InvalidChange,
                false => new::cluster_conf_update_response::ErrorCode::NotLeader,
            };
            let (id, term) = (request.id, known(node).term);
            now(Ok(new::ClusterConfUpdateResponse { id, term, version: 1, success: false, error_code: why.into() }))
        }
    })
}

/// The members now, and again whenever they change: they do not yet.
pub(super) async fn watch(node: Node, mut requests: Requests, responses: Responses) -> Result<(), Status> {
    let WatchMembershipRequest { .. } = only(&mut requests).await?;
    let members = known(&node).members.into_iter().map(|(id, _)| small(id)).collect();
    let committed_index = node.handle().status().commit;
    let snapshot = MembershipSnapshot { members, learners: Vec::new(), committed_index };
    responses.send(grpc::encode(&snapshot)).await.map_err(gone)?;
    std::future::pending().await
}
