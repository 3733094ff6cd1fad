//! `d-engine ctl`: looks at a group, changes who belongs to it, and changes a key.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use d_engine_client::grpc::GrpcError;
use d_engine_client::wire::change_members_request::Change;
use d_engine_client::{Error, ReadLevel, wire};
use service_kit::console;
use tokio::time::sleep;

use super::access::{self, Access, Problem};
use super::{in_full, snapshot, users};
use crate::engine::Address;
use crate::settings::address_of;
use crate::state::VALUE_BYTES_MAX;

/// Between two looks for a leader.
const LEADER_PAUSE: Duration = Duration::from_millis(50);

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Addresses of members.
    #[arg(
        long = "endpoints",
        global = true,
        default_value = "127.0.0.1:9081",
        value_delimiter = ',',
        value_name = "HOST:PORT",
        value_parser = access::endpoint
    )]
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
    /// Says who belongs to the group, where clients find each, whether it votes, and which one leads.
    List,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Changes who belongs to the group, or says it.
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
    /// Says what each member is. It fails if one of them does not answer.
    Status,
    /// Has each of the members that are named rewrite the files of its state, one after the other, so that they have no more than what is
    /// there. For that time it takes the room of both.
    Defragment,
    /// Gives a key a value; its revision.
    Put {
        /// The key; one that begins with a hyphen stands behind --, as for get and delete.
        key: String,
        /// Its value.
        #[arg(allow_hyphen_values = true, required_unless_present = "value_file")]
        value: Option<String>,
        /// A file that is the value, with all of its bytes; -: standard input is that.
        #[arg(long, value_name = "FILE", conflicts_with = "value")]
        value_file: Option<PathBuf>,
    },
    /// Deletes a key; says whether it was there.
    Delete {
        /// The key.
        key: String,
    },
    /// Reads a key. A value that is text is a line, or several; any other one is its bytes alone.
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
    ask_status(access, endpoint).await.map_err(|error| access::met_at(endpoint, &error))
}

async fn ask_status(access: &Access, endpoint: &str) -> Result<wire::StatusReply, GrpcError> {
    let channel = access.channel(endpoint).await?;
    channel.unary("/storebench.dengine.v1.Store/Status", &wire::StatusRequest {}).await
}

/// What a member is to the group, as it sees that.
fn role(status: &wire::StatusReply) -> &'static str {
    let is_learner = |member: &wire::Member| member.id == status.member_id && !member.is_voter;
    match status.members.iter().any(is_learner) {
        _ if status.leader_id == status.member_id => "leader",
        true => "learner",
        false => "follower",
    }
}

async fn print_statuses(access: &Access, endpoints: &[String]) -> anyhow::Result<()> {
    let (mut silent, mut refused) = (0, 0);
    for endpoint in endpoints {
        match ask_status(access, endpoint).await {
            Ok(status) => console::print(format_args!(
                "{endpoint}: member {} {} term {} committed {} applied {} leader {} durability {} ready {} version {}\n",
                status.member_id,
                role(&status),
                status.term,
                status.committed,
                status.applied,
                status.leader_id,
                status.durability,
                status.is_ready,
                status.version
            ))?,
            Err(error) => {
                let count = if matches!(error, GrpcError::Status { .. }) { &mut refused } else { &mut silent };
                *count += 1;
                console::print(format_args!("{}\n", access::met_at(endpoint, &error)))?;
            }
        }
    }
    let all = endpoints.len();
    let said = [(silent, "do not answer"), (refused, "answer, and refuse to say it")];
    let said = said.into_iter().filter(|(count, _)| *count > 0);
    let said: Vec<String> = said.map(|(count, what)| format!("{count} of {all} members {what}")).collect();
    anyhow::ensure!(said.is_empty(), "{}", said.join(", "));
    Ok(())
}

/// As the leader knows it, or else the first member that answers.
async fn print_members(access: &Access, endpoints: &[String]) -> anyhow::Result<()> {
    let (seen, problem) = match find_leader(access, endpoints).await {
        Ok((_, status)) => (Some(status), None),
        Err(problem) => {
            let mut seen = None;
            for endpoint in endpoints {
                seen = seen.or(status(access, endpoint).await.ok());
            }
            (seen, Some(problem))
        }
    };
    for wire::Member { id, address, is_voter } in seen.iter().flat_map(|seen| &seen.members) {
        let votes = if *is_voter { "voter" } else { "learner" };
        let leads = if seen.as_ref().is_some_and(|seen| seen.leader_id == *id) { " leader" } else { "" };
        console::print(format_args!("{id} {address} {votes}{leads}\n"))?;
    }
    problem.map_or(Ok(()), Err)
}

/// Why nobody was found who leads.
pub(super) struct NoLeader {
    problem: anyhow::Error,
    /// A member has answered: it may know one the next time.
    may_change: bool,
}

/// The leader's address and what it says of itself, by the first of the members that knows it.
pub(super) async fn find_leader(access: &Access, endpoints: &[String]) -> anyhow::Result<(String, wire::StatusReply)> {
    look_for_leader(access, endpoints).await.map_err(|NoLeader { problem, .. }| problem)
}

/// The same, for so long as members answer that know of none: there is an election now and then. Where nobody answers, that is said at once.
pub(super) async fn wait_for_leader(
    access: &Access,
    endpoints: &[String],
    patience: Duration,
) -> anyhow::Result<(String, wire::StatusReply)> {
    let deadline = Instant::now() + patience;
    loop {
        match look_for_leader(access, endpoints).await {
            Ok(found) => return Ok(found),
            Err(NoLeader { problem, may_change: false }) => return Err(problem),
            Err(NoLeader { problem, .. }) if Instant::now() >= deadline => {
                return Err(problem.context(format!("no leader was found within {patience:?}")));
            }
            Err(_) => sleep(LEADER_PAUSE).await,
        }
    }
}

async fn look_for_leader(access: &Access, endpoints: &[String]) -> Result<(String, wire::StatusReply), NoLeader> {
    let (mut problem, mut may_change) = (Problem::default(), false);
    for endpoint in endpoints {
        let leader = match ask_status(access, endpoint).await {
            Ok(found) if found.leader_id == found.member_id => return Ok((endpoint.clone(), found)),
            Ok(found) => {
                may_change = true;
                found.leader_address
            }
            Err(error) => {
                problem.met(endpoint, &error);
                continue;
            }
        };
        if leader.is_empty() {
            problem.said(anyhow::anyhow!("{endpoint}: no leader is known: is a majority running?"));
            continue;
        }
        match status(access, &leader).await {
            Ok(status) if status.leader_id == status.member_id => return Ok((leader, status)),
            Ok(_) => problem.said(anyhow::anyhow!("{leader}: it is said to lead, and does not")),
            Err(error) => problem.said(not_reached(endpoint, &error)),
        }
    }
    Err(NoLeader { problem: problem.into_error(), may_change })
}

/// What has become of the leader that a member has named.
fn not_reached(by: &str, error: &anyhow::Error) -> anyhow::Error {
    anyhow::anyhow!("{error}: it leads, says the member at {by}")
}

/// Asks members one after the other, and whom they name, until the leader has done it.
async fn change_members(access: &Access, endpoints: &[String], change: Change) -> anyhow::Result<()> {
    let request = wire::ChangeMembersRequest { change: Some(change) };
    // Each with the member that has named it.
    let mut waiting: VecDeque<(String, Option<String>)> =
        endpoints.iter().map(|endpoint| (endpoint.clone(), None)).collect();
    let mut problem = Problem::default();
    let mut asked = 0;
    while let Some((endpoint, named_by)) = waiting.pop_front() {
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
                    problem.said(match &leader {
                        Some(leader) => anyhow::anyhow!("{endpoint}: it does not lead, but the member at {leader}"),
                        None => anyhow::anyhow!("{endpoint}: no leader is known: is a majority running?"),
                    });
                    // Leaders may change while they are looked for, but not for ever.
                    let leader = leader.filter(|_| asked < 2 * endpoints.len() + 2);
                    waiting.extend(leader.map(|leader| (leader, Some(endpoint))));
                }
                error => return Err(error.into()),
            },
            Err(error) => match named_by {
                Some(by) => problem.said(not_reached(&by, &access::met_at(&endpoint, &error))),
                None => problem.met(&endpoint, &error),
            },
        }
    }
    Err(problem.into_error())
}

/// Has members rewrite their files. A member that cannot does not keep the others from it.
async fn defragment(access: &Access, endpoints: &[String]) -> anyhow::Result<()> {
    let mut failed = 0;
    for endpoint in endpoints {
        let rewritten = async {
            let reply = async {
                let channel = access.channel(endpoint).await?;
                let request = wire::DefragmentRequest {};
                channel.unary("/storebench.dengine.v1.Store/Defragment", &request).await
            };
            let reply: wire::DefragmentReply = reply.await.map_err(|error| access::met_at(endpoint, &error))?;
            match reply.error {
                Some(error) => Err(anyhow::anyhow!("{endpoint}: {}", error.parse())),
                None => Ok::<_, anyhow::Error>((reply.before_bytes, reply.after_bytes)),
            }
        };
        match rewritten.await {
            Ok((before, after)) => console::print(format_args!("{endpoint}: {before} bytes before, {after} after\n"))?,
            Err(error) => {
                failed += 1;
                console::tell(in_full(&error));
            }
        }
    }
    anyhow::ensure!(failed == 0, "{failed} of {} members have not done it", endpoints.len());
    Ok(())
}

pub(super) async fn run(Arguments { endpoints, access, verb }: Arguments) -> anyhow::Result<()> {
    let access = access.open()?;
    match verb {
        Verb::Status => print_statuses(&access, &endpoints).await?,
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
                Member::List => return print_members(&access, &endpoints).await,
            };
            change_members(&access, &endpoints, change).await?;
        }
        Verb::Transfer { id } => change_members(&access, &endpoints, Change::Transfer(id)).await?,
        Verb::Put { key, value, value_file } => {
            let value = match value_file {
                Some(file) => read_value(&file)?,
                None => value.unwrap_or_default().into(),
            };
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
            match std::str::from_utf8(&item.value) {
                Ok(text) => console::print(format_args!("{text}\n"))?,
                Err(_) => console::print_bytes(&item.value)?,
            }
        }
    }
    Ok(())
}

/// The bytes of a file, or of standard input, as far as a value may have them.
fn read_value(file: &Path) -> anyhow::Result<Bytes> {
    let (mut value, limit) = (Vec::new(), VALUE_BYTES_MAX as u64 + 1);
    let read = match file.to_str() {
        Some("-") => std::io::stdin().lock().take(limit).read_to_end(&mut value),
        _ => File::open(file).and_then(|file| file.take(limit).read_to_end(&mut value)),
    };
    read.with_context(|| format!("--value-file {}", file.display()))?;
    let is_value = value.len() <= VALUE_BYTES_MAX;
    anyhow::ensure!(is_value, "--value-file {}: a value has {VALUE_BYTES_MAX} bytes at most", file.display());
    Ok(value.into())
}
