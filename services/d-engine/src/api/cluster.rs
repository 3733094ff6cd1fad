//! Who the members are, in both dialects, and how that changes. A dialect has one address of a member: other members find it 1000 ports
//! above, as everywhere else where nothing else is said.

use bytes::Bytes;
use d_engine_client::Error;
use d_engine_client::proto::d_engine::client::{MembershipSnapshot, WatchMembershipRequest};
use d_engine_client::proto::d_engine::common as new_words;
use d_engine_client::proto::d_engine::server::cluster as new;
use d_engine_client::proto::raft::cluster as old;
use d_engine_client::proto::raft::common as old_words;
use service_kit::grpc::{self, Code, Requests, Responses, Status, Unary};

use super::{Api, decode_short, errors, gone, later, now, only};
use crate::engine::{Address, MemberChange, Node};
use crate::settings::address_of;

/// Of the list of members: they are changed by the log, which has an order of its own, and a request's version is not looked at.
const VERSION: u64 = 1;
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
    /// With whether it votes.
    members: Vec<(u64, String, bool)>,
}

fn known(node: &Node) -> Known {
    let leadership = *node.leadership().borrow();
    // A leader that has not applied an entry of its own term yet is not shown: it may not know all that was acknowledged.
    let is_hidden = leadership.leader == Some(node.id()) && !leadership.is_ready_leader;
    let leader = leadership.leader.filter(|_| !is_hidden);
    let learners = node.status().membership.learners.clone();
    let member = |(id, address): (&u64, &Address)| (*id, address.client.clone(), !learners.contains(id));
    Known { leader, term: leadership.term, members: node.members().iter().map(member).collect() }
}

/// Member numbers have 32 bits in these dialects; the server starts with no other.
fn small(id: u64) -> u32 {
    u32::try_from(id).unwrap_or_default()
}

fn leader(node: &Node) -> Result<(u32, String, u64), Status> {
    let Known { leader, term, members } = known(node);
    let found = leader.and_then(|leader| members.into_iter().find(|(id, ..)| *id == leader));
    let (id, address, _) = found.ok_or_else(|| Status::new(Code::Unavailable, "there is no leader"))?;
    Ok((small(id), address, term))
}

/// Both dialects have the same messages, under names of their own: one text for both.
macro_rules! dialect {
    ($answer:ident, $words:ident, $membership:ident) => {
        pub(super) fn $answer(api: &Api, method: Method, message: Bytes) -> Result<Unary, Status> {
            let node = &api.node;
            Ok(match method {
                Method::GetClusterMetadata => {
                    let $words::MetadataRequest {} = decode_short(message)?;
                    now(Ok($membership(node)))
                }
                Method::DiscoverLeader => {
                    let $words::LeaderDiscoveryRequest { .. } = decode_short(message)?;
                    let said = leader(node);
                    now(said.map(|(leader_id, leader_address, term)| $words::LeaderDiscoveryResponse {
                        leader_id,
                        leader_address,
                        term,
                    }))
                }
                Method::JoinCluster => {
                    let $words::JoinRequest { node_id, address, .. } = decode_short(message)?;
                    let node = node.clone();
                    later(api.patience_of_changes(), async move {
                        let joined = join(&node, node_id, &address).await;
                        let leader_id = known(&node).leader.map_or(0, small);
                        Ok(match joined {
                            Err(error @ Error::Denied(_)) => return Err(errors::status(error)),
                            Err(error) => $words::JoinResponse {
                                error: error.to_string(),
                                leader_id,
                                ..$words::JoinResponse::default()
                            },
                            Ok(()) => $words::JoinResponse {
                                success: true,
                                config: Some($membership(&node)),
                                config_version: VERSION,
                                leader_id,
                                ..$words::JoinResponse::default()
                            },
                        })
                    })
                }
                Method::UpdateClusterConf => {
                    use $words::cluster_conf_update_response::ErrorCode;
                    use $words::membership_change::Change;
                    let $words::ClusterConfChangeRequest { id, term, change, .. } = decode_short(message)?;
                    let promoted =
                        |ids: Vec<u32>| ids.into_iter().map(|id| Ok(MemberChange::Promote(id.into()))).collect();
                    let removed =
                        |ids: Vec<u32>| ids.into_iter().map(|id| Ok(MemberChange::Remove(id.into()))).collect();
                    let changes: Vec<Result<_, Error>> = match change.and_then(|change| change.change) {
                        Some(Change::AddNode($words::AddNode { node_id, address, .. })) => {
                            vec![added(node_id, &address)]
                        }
                        Some(Change::RemoveNode($words::RemoveNode { node_id })) => removed(vec![node_id]),
                        Some(Change::Promote($words::PromoteLearner { node_id, .. })) => promoted(vec![node_id]),
                        Some(Change::BatchPromote($words::BatchPromote { node_ids, .. })) => promoted(node_ids),
                        Some(Change::BatchRemove($words::BatchRemove { node_ids })) => removed(node_ids),
                        None => Vec::new(),
                    };
                    let node = node.clone();
                    later(api.patience_of_changes(), async move {
                        let known_term = known(&node).term;
                        let error = match change_all(&node, term, known_term, changes).await {
                            None => ErrorCode::None,
                            Some(Wrong::Denied(error)) => return Err(errors::status(error)),
                            Some(Wrong::NotLeader) => ErrorCode::NotLeader,
                            Some(Wrong::TermOutdated) => ErrorCode::TermOutdated,
                            Some(Wrong::Invalid) => ErrorCode::InvalidChange,
                            Some(Wrong::Other) => ErrorCode::InternalError,
                        };
                        Ok($words::ClusterConfUpdateResponse {
                            id,
                            term: known_term,
                            version: VERSION,
                            success: error == ErrorCode::None,
                            error_code: error.into(),
                        })
                    })
                }
            })
        }
    };
}

dialect!(first, old, first_membership);
dialect!(second, new, second_membership);

fn first_membership(node: &Node) -> old::ClusterMembership {
    let Known { leader, members, .. } = known(node);
    let meta = |(id, address, votes): (u64, String, bool)| {
        let (role, status) = match votes {
            _ if leader == Some(id) => (old_words::NodeRole::Leader, old_words::NodeStatus::Active),
            true => (old_words::NodeRole::Follower, old_words::NodeStatus::Active),
            false => (old_words::NodeRole::Learner, old_words::NodeStatus::Syncing),
        };
        old::NodeMeta { id: small(id), address, role: role.into(), status: status.into() }
    };
    old::ClusterMembership { version: VERSION, nodes: members.into_iter().map(meta).collect() }
}

fn second_membership(node: &Node) -> new::ClusterMembership {
    let Known { leader, members, .. } = known(node);
    let meta = |(id, address, votes): (u64, String, bool)| {
        let (role, status) = match votes {
            _ if leader == Some(id) => (new_words::NodeRole::Leader, new_words::NodeStatus::Active),
            true => (new_words::NodeRole::Follower, new_words::NodeStatus::Active),
            false => (new_words::NodeRole::Learner, new_words::NodeStatus::Promotable),
        };
        new::NodeMeta { id: small(id), address, role: role.into(), status: status.into() }
    };
    let nodes = members.into_iter().map(meta).collect();
    new::ClusterMembership { version: VERSION, nodes, current_leader_id: leader.map(small) }
}

fn added(id: u32, address: &str) -> Result<MemberChange, Error> {
    let address = address_of(address, None).map_err(|mistake| Error::Invalid(mistake.to_string()))?;
    Ok(MemberChange::Add(id.into(), address))
}

async fn join(node: &Node, id: u32, address: &str) -> Result<(), Error> {
    node.administers()?;
    node.change_members(added(id, address)?).await
}

/// Why members were not changed.
enum Wrong {
    Denied(Error),
    NotLeader,
    TermOutdated,
    Invalid,
    Other,
}

/// One after the other; those before the one that is wrong are done.
async fn change_all(
    node: &Node,
    term: u64,
    known_term: u64,
    changes: Vec<Result<MemberChange, Error>>,
) -> Option<Wrong> {
    let wrong = |error| match error {
        Error::NotLeader(_) => Wrong::NotLeader,
        // They have no word for what may be done later.
        Error::Invalid(_) | Error::NotNow(_) => Wrong::Invalid,
        _ => Wrong::Other,
    };
    if let Err(error) = node.administers() {
        return Some(Wrong::Denied(error));
    }
    if !node.leads() {
        return Some(Wrong::NotLeader);
    }
    // Who does not know the term says 0.
    if term != 0 && term < known_term {
        return Some(Wrong::TermOutdated);
    }
    if changes.is_empty() {
        return Some(Wrong::Invalid);
    }
    for change in changes {
        let changed = match change {
            Ok(change) => node.change_members(change).await,
            Err(error) => Err(error),
        };
        if let Err(error) = changed {
            return Some(wrong(error));
        }
    }
    None
}

/// The members now, and again whenever they have changed.
pub(super) async fn watch(node: Node, requests: Requests, responses: Responses) -> Result<(), Status> {
    let WatchMembershipRequest { .. } = only(requests).await?;
    let (mut addresses, mut votes) = (node.follow_addresses(), node.follow_votes());
    let mut told = None;
    loop {
        let (voters, learners): (Vec<_>, Vec<_>) = known(&node).members.into_iter().partition(|(.., votes)| *votes);
        let ids = |members: Vec<(u64, String, bool)>| members.into_iter().map(|(id, ..)| small(id)).collect::<Vec<_>>();
        let now = (ids(voters), ids(learners));
        if told.as_ref() != Some(&now) {
            let (members, learners) = now.clone();
            let committed_index = node.status().commit;
            let snapshot = MembershipSnapshot { members, learners, committed_index };
            responses.send(grpc::encode(&snapshot)).await.map_err(gone)?;
            told = Some(now);
        }
        let changed = tokio::select! {
            changed = addresses.changed() => changed,
            changed = votes.changed() => changed,
        };
        changed.map_err(|_| errors::status(Error::Stopped))?;
    }
}
