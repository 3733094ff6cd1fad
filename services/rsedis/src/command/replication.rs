//! Replication: who follows whom, and how far they are.

use super::failover::{Lead, answer_demand, take_lead};
use super::options::{deadline_millis, integer, is, text};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::log;
use crate::protocol::Args;
use crate::replication::{Contents, Replica, Stage};
use crate::server::{Request, Server};
use crate::session::Session;
use crate::waiting::{self, TimeoutReply};

/// The name or address that a replica says it has is shorter.
const HOST_BYTES_MAX: usize = 256;
const NO_MASTER_LINK: Failure = Failure::new("NOMASTERLINK Can't SYNC while not connected with my master");

/// A replica without its master's stream has nothing to give; whether it may ask was checked.
fn check_can_feed(server: &Server, client: &Session) -> Outcome {
    if server.replication.failover.is_some() {
        return Err(Failure::new("NOMASTERLINK Can't SYNC while failing over"));
    }
    if server.replication.master.as_ref().is_some_and(|master| !master.is_up()) {
        return Err(NO_MASTER_LINK);
    }
    check_can_be_fed(client)
}

/// The same of who asks.
fn check_can_be_fed(client: &Session) -> Outcome {
    // What it has asked for before would come amid the stream.
    if !client.reply.bytes.is_empty() && !client.is_replica() {
        return Err(Failure::new("ERR SYNC and PSYNC are invalid with pending output"));
    }
    // Its file never gets a name here.
    if client.replica.as_ref().is_some_and(|replica| replica.contents != Contents::ALL && !replica.takes_mark) {
        return Err(Failure::new("ERR Filtered replica requires EOF capability"));
    }
    Ok(())
}

/// The stream is kept from now on. Who came before knows of another history.
fn begin_history(server: &mut Server) {
    if server.replication.backlog.is_none() {
        if !server.replication.is_replica() {
            let id = server.random.name();
            server.replication.begin_anew(id);
        }
        let size = server.settings.backlog_bytes;
        server.replication.begin_backlog(size);
        // What was changed before the keys are sent is in the keys.
        server.effects.mark_replicated();
        server.choose_effects();
    }
}

fn need_keys(server: &mut Server, client: &mut Session, is_silent: bool) {
    begin_history(server);
    server.stats.full_syncs += 1;
    server.enlist(client);
    let now = server.now;
    let replica = client.replica.get_or_insert_default();
    replica.is_silent = is_silent;
    replica.wait(now);
}

/// All keys as an RDB file, and from then on all effects.
pub(super) fn sync(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    if client.is_replica() {
        return Ok(());
    }
    check_can_feed(server, client)?;
    need_keys(server, client, true);
    Ok(())
}

/// The stream from where the replica is, or all keys.
pub(super) fn psync(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if client.is_replica() {
        return Ok(());
    }
    let id = String::from_utf8_lossy(args.at(1)).into_owned();
    if args.get(3).is_some_and(|word| is(word, "FAILOVER")) {
        let lead = answer_demand(&server.replication, args)?;
        // Whoever is refused must not think that nobody leads.
        check_can_be_fed(client)?;
        if lead == Lead::Take {
            take_lead(server, client);
        }
    }
    check_can_feed(server, client)?;
    let wanted = integer(args.at(2)).inspect_err(|_| {
        log::warning(format_args!("Replica {} asks for synchronization but with a wrong offset", client.address));
    })?;
    // What is not in the backlog yet comes with what other replicas get.
    let Some(from) = server.replication.continues(&id, wanted) else {
        server.stats.partial_syncs_refused += u64::from(id != "?");
        need_keys(server, client, false);
        return Ok(());
    };
    server.stats.partial_syncs += 1;
    server.enlist(client);
    let Server { replication, now, .. } = server;
    let replica = client.replica.get_or_insert_default();
    // It has applied what comes before, and its file may hold none of that: what is safe there it says itself.
    (replica.stage, replica.acknowledged, replica.heard_at) = (Stage::Online, 0, *now);
    match replica.takes_new_id {
        true => client.reply.simple(format!("CONTINUE {}", replication.id)),
        false => client.reply.simple("CONTINUE"),
    }
    if let Some((first, second)) = replication.backlog.as_ref().and_then(|backlog| backlog.since(from)) {
        client.reply.bytes.extend_from_slice(first);
        client.reply.bytes.extend_from_slice(second);
    }
    Ok(())
}

/// What a replica says of itself.
pub(super) fn replconf(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    for at in (1..args.len()).step_by(2) {
        let (option, value) = (args.at(at), args.at(at + 1));
        if is(option, "GETACK") {
            // Asked by the master; the answer goes behind what comes with the question, once that is safe.
            if let (true, Some(master)) = (client.is_master, &mut server.replication.master) {
                master.is_owed = true;
            }
            return Ok(());
        }
        if is(option, "ACK") {
            return acknowledge(server, client, value);
        }
        let replica: &mut Replica = client.replica.get_or_insert_default();
        match option {
            word if is(word, "listening-port") => {
                replica.port = u16::try_from(integer(value)?).map_err(|_| crate::failure::NOT_INTEGER)?;
            }
            word if is(word, "ip-address") => match value.len() < HOST_BYTES_MAX {
                true => replica.address = String::from_utf8_lossy(value).into_owned(),
                false => {
                    return Err(Failure::text(format!(
                        "ERR REPLCONF ip-address provided by replica instance is too long: {} bytes",
                        value.len()
                    )));
                }
            },
            word if is(word, "capa") => {
                replica.takes_mark |= is(value, "eof");
                replica.takes_new_id |= is(value, "psync2");
            }
            word if is(word, "rdb-only") => match integer(value)? {
                flag @ 0..=1 => replica.is_rdb_only = flag == 1,
                _ => return Err(Failure::new("ERR value is out of range, value must between 0 and 1")),
            },
            word if is(word, "rdb-filter-only") => set_contents(replica, value)?,
            other => return Err(Failure::joined(&[b"ERR Unrecognized REPLCONF option: ", other])),
        }
    }
    client.reply.ok();
    Ok(())
}

/// What of the keys and functions a replica's file is to hold: what is named, and nothing else.
fn set_contents(replica: &mut Replica, names: &[u8]) -> Outcome {
    let names = String::from_utf8_lossy(names);
    replica.contents = Contents { has_keys: false, has_functions: false };
    for name in names.split_ascii_whitespace() {
        match is(name.as_bytes(), "functions") {
            true => replica.contents.has_functions = true,
            false => return Err(Failure::text(format!("ERR Unsupported rdb-filter-only option: {name}"))),
        }
    }
    Ok(())
}

/// A replica tells how far it is. There is no reply.
fn acknowledge(server: &mut Server, client: &mut Session, value: &[u8]) -> Outcome {
    let now = server.now;
    let Some(replica) = client.replica.as_deref_mut().filter(|replica| replica.stage != Stage::Introducing) else {
        return Ok(());
    };
    replica.heard_at = now;
    if let Ok(offset) = integer(value) {
        replica.acknowledged = replica.acknowledged.max(offset.max(0) as u64);
    }
    if replica.stage == Stage::Loading {
        Server::put_online(&server.replication, client, now);
    }
    server.replication.has_news = true;
    Ok(())
}

/// Who has made this server what it is now.
fn tell(server: &Server, client: &Session, what: &str) {
    let from = super::client::describe(client, server.now);
    log::notice(format_args!("{what} enabled (user request from '{}')", from.trim_end()));
}

pub(super) fn replicaof(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let (host, port) = (args.at(1), args.at(2));
    if server.replication.failover.is_some() {
        return Err(Failure::new("ERR REPLICAOF not allowed while failing over."));
    }
    if is(host, "NO") && is(port, "ONE") {
        if server.replication.is_replica() {
            server.stop_following();
            tell(server, client, "MASTER MODE");
        }
        client.reply.ok();
        return Ok(());
    }
    if client.is_replica() {
        return Err(Failure::new("ERR Command is not valid when client is a replica."));
    }
    let port = integer(port).ok().and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(Failure::new("ERR Invalid master port"))?;
    let host = text(host, "the master's host")?.to_owned();
    if server.replication.master.as_ref().is_some_and(|master| master.host == host && master.port == port) {
        client.reply.simple("OK Already connected to specified master");
        return Ok(());
    }
    server.settings.set_master(Some((&host, port)));
    let was_master = !server.replication.is_replica();
    let what = format!("REPLICAOF {host}:{port}");
    server.follow(host, port);
    tell(server, client, &what);
    if was_master {
        waiting::end_all(server);
    }
    server.requests.push(Request::DropMaster);
    client.reply.ok();
    Ok(())
}

pub(super) fn role(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    let (reply, replication) = (&mut client.reply, &server.replication);
    if let Some(master) = &replication.master {
        reply.array(5);
        reply.bulk(b"slave");
        reply.bulk(master.host.as_bytes());
        reply.integer(i64::from(master.port));
        reply.bulk(master.link_word().as_bytes());
        reply.integer(if master.is_up() { replication.offset as i64 } else { -1 });
        return Ok(());
    }
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(replication.offset as i64);
    let online: Vec<_> = server.replicas().into_iter().filter(|(_, replica)| replica.stage == Stage::Online).collect();
    reply.array(online.len());
    for (address, replica) in online {
        reply.array(3);
        reply.bulk(address.as_bytes());
        reply.bulk(replica.port.to_string().as_bytes());
        reply.bulk(replica.acknowledged.to_string().as_bytes());
    }
    Ok(())
}

/// Waits until enough replicas have what this client has written.
pub(super) fn wait(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if server.replication.is_replica() {
        return Err(Failure::new(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be \
             writable (which is not the default) writes to replicas are just local and are not propagated.",
        ));
    }
    // Fewer than none are there at once.
    let wanted = usize::try_from(integer(args.at(1))?).unwrap_or(0);
    let deadline = deadline_millis(args.at(2), server.now)?;
    let offset = client.written_until;
    let count = server.acknowledgements(offset);
    if count >= wanted || client.may_not_wait {
        client.reply.count(count);
        return Ok(());
    }
    server.replication.wants_acknowledgements = true;
    waiting::wait(server, client, args, Vec::new(), deadline, TimeoutReply::Acknowledgements { offset, wanted });
    Ok(())
}
