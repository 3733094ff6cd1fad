//! `d-engine ctl`: looks at a group, changes who belongs to it, and changes a key.

use std::collections::VecDeque;

use anyhow::Context as _;
use d_engine_client::wire::change_members_request::Change;
use d_engine_client::{Error, ReadLevel, wire};
use service_kit::console;

use super::access::{self, Access};
use super::{snapshot, users};
use crate::engine::Address;
use crate::settings::address_of;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Addresses of members.
    #[arg(long = "endpoints", default_value = "127.0.0.1:9081", value_delimiter = ',')]
    endpoints: Vec<String>,
    #[command(flatten)]
    access: access::Flags,
    #[command(subcommand)]
    verb: Verb,
}

/// Who belongs to the group.
#[derive(Debug, clap::Subcommand)]
enum Member {
    /// Adds a member that gets the log and does not vote. Start it after that, with --join and this number.
    Add {
        /// Its number, which no member ever had.
        id: u64,
        /// Where clients find it, and where other members do; by default 1000 ports above.
        #[arg(value_name = "HOST:PORT[,HOST:PORT]")]
        address: String,
    },
    /// Lets a member vote that has caught up.
    Promote {
        /// Its number.
        id: u64,
    },
    /// Removes a member for good; its number is never used again.
    Remove {
        /// Its number.
        id: u64,
    },
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Changes who belongs to the group.
    #[command(subcommand)]
    Member(Member),
    /// Hands leadership over to a member.
    Transfer {
        /// Its number.
        id: u64,
    },
    /// Keeps all of a group's data in a file, or looks at such a file. A new group begins with one by `serve --restore FILE`.
    #[command(subcommand)]
    Snapshot(snapshot::Verb),
    /// Says and changes who may do what.
    #[command(subcommand)]
    User(users::Verb),
    /// Has members ask for users, or not.
    #[command(subcommand)]
    Auth(users::Auth),
    /// Says what each member is.
    Status,
    /// Has each of the members that are named rewrite the files of its state, one after the other, so that they have no more than what is
    /// there. For that time it takes the room of both.
    Defragment,
    /// Gives a key a value; its revision.
    Put {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// Deletes a key; says whether it was there.
    Delete {
        /// The key.
        key: String,
    },
    /// Reads a key.
    Get {
        /// The key.
        key: String,
        /// linearizable, lease or eventual; or l, s, e.
        #[arg(long, default_value = "linearizable", value_parser = level)]
        consistency: ReadLevel,
    },
}

/// The level with this name; `s` is the report's word for lease reads.
pub(super) fn level(name: &str) -> Result<ReadLevel, String> {
    match name {
        "l" | "linearizable" => Ok(ReadLevel::Linearizable),
        "s" | "lease" => Ok(ReadLevel::Lease),
        "e" | "eventual" => Ok(ReadLevel::Eventual),
        _ => Err("expected l (linearizable), s (lease) or e (eventual)".into()),
    }
}

/// What a member says of itself.
pub(super) async fn status(access: &Access, endpoint: &str) -> anyhow::Result<wire::StatusReply> {
    let channel = access.channel(endpoint).await?;
    Ok(channel.unary("/storebench.dengine.v1.Store/Status", &wire::StatusRequest {}).await?)
}

/// Asks members one after the other, and whom they name, until the leader has done it.
async fn change_members(access: &Access, endpoints: &[String], change: Change) -> anyhow::Result<()> {
    let request = wire::ChangeMembersRequest { change: Some(change) };
    let mut waiting: VecDeque<String> = endpoints.to_vec().into();
    let mut problem = anyhow::anyhow!("no address was given");
    let mut asked = 0;
    while let Some(endpoint) = waiting.pop_front() {
        asked += 1;
        let answer = async {
            let channel = access.channel(&endpoint).await?;
            channel.unary::<wire::ChangeMembersReply>("/storebench.dengine.v1.Store/ChangeMembers", &request).await
        };
        match answer.await {
            Ok(wire::ChangeMembersReply { error: None }) => return Ok(()),
            Ok(wire::ChangeMembersReply { error: Some(error) }) => match error.parse() {
                Error::NotLeader(leader) => {
                    let leader = leader.map(|leader| leader.address).filter(|address| !address.is_empty());
                    // Leaders may change while they are looked for, but not for ever.
                    waiting.extend(leader.filter(|_| asked < 2 * endpoints.len() + 2));
                    problem = anyhow::anyhow!("{endpoint}: it does not lead");
                }
                error => return Err(error.into()),
            },
            Err(error) => problem = anyhow::anyhow!("{endpoint}: {error}"),
        }
    }
    Err(problem)
}

/// Has members rewrite their files. A member that cannot does not keep the others from it.
async fn defragment(access: &Access, endpoints: &[String]) -> anyhow::Result<()> {
    let mut failed = 0;
    for endpoint in endpoints {
        let rewritten = async {
            let channel = access.channel(endpoint).await?;
            let request = wire::DefragmentRequest {};
            let reply: wire::DefragmentReply =
                channel.unary("/storebench.dengine.v1.Store/Defragment", &request).await?;
            match reply.error {
                Some(error) => Err(error.parse().into()),
                None => Ok::<_, anyhow::Error>((reply.before_bytes, reply.after_bytes)),
            }
        };
        match rewritten.await {
            Ok((before, after)) => console::print(format_args!("{endpoint}: {before} bytes before, {after} after\n"))?,
            Err(error) => {
                failed += 1;
                console::tell(format_args!("{endpoint}: {error:#}"));
            }
        }
    }
    anyhow::ensure!(failed == 0, "{failed} of {} members have not done it", endpoints.len());
    Ok(())
}

pub(super) async fn run(Arguments { endpoints, access, verb }: Arguments) -> anyhow::Result<()> {
    let access = access.open()?;
    match verb {
        Verb::Status => {
            let mut answered = 0;
            for endpoint in &endpoints {
                match status(&access, endpoint).await {
                    Ok(status) => {
                        answered += 1;
                        let role = if status.leader_id == status.member_id { "leader" } else { "follower" };
                        console::print(format_args!(
                            "{endpoint}: member {} {role} term {} committed {} applied {} leader {} durability {} ready {} \
                             version {}\n",
                            status.member_id,
                            status.term,
                            status.committed,
                            status.applied,
                            status.leader_id,
                            status.durability,
                            status.is_ready,
                            status.version
                        ))?;
                    }
                    Err(error) => console::print(format_args!("{endpoint}: {error:#}\n"))?,
                }
            }
            anyhow::ensure!(answered > 0, "no member answers");
        }
        Verb::Defragment => defragment(&access, &endpoints).await?,
        Verb::Snapshot(verb) => snapshot::run(&access, &endpoints, verb).await?,
        Verb::User(verb) => users::run(&access, &endpoints, verb).await?,
        Verb::Auth(auth) => users::enable(&access, &endpoints, auth).await?,
        Verb::Member(member) => {
            let change = match member {
                Member::Add { id, address } => {
                    let (client, peer) =
                        address.split_once(',').map_or((&*address, None), |(client, peer)| (client, Some(peer)));
                    let Address { client, peer } = address_of(client, peer)?;
                    Change::Add(wire::AddMember { id, client_address: client, peer_address: peer })
                }
                Member::Promote { id } => Change::Promote(id),
                Member::Remove { id } => Change::Remove(id),
            };
            change_members(&access, &endpoints, change).await?;
        }
        Verb::Transfer { id } => change_members(&access, &endpoints, Change::Transfer(id)).await?,
        Verb::Put { key, value } => {
            let client = access.client(&endpoints).await?;
            console::print(format_args!("{}\n", client.put(key, value).await?))?;
        }
        Verb::Delete { key } => {
            let client = access.client(&endpoints).await?;
            console::print(format_args!("{}\n", if client.delete(key).await? { "deleted" } else { "not there" }))?;
        }
        Verb::Get { key, consistency } => {
            let client = access.client(&endpoints).await?;
            let seen = client.get_with(key.clone(), consistency).await?;
            let item = seen.value.with_context(|| format!("{key}: no such key"))?;
            console::print(format_args!("{}\n", String::from_utf8_lossy(&item.value)))?;
        }
    }
    Ok(())
}
