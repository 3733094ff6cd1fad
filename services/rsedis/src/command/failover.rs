//! FAILOVER: what may be asked for. How it goes is in [`crate::replication::failover`].

use super::options::{integer, is};
use crate::failure::{Failure, NOT_INTEGER, Outcome, SYNTAX};
use crate::protocol::Args;
use crate::replication::failover::is_at;
use crate::replication::{Failover, Replication, Stage};
use crate::server::Server;
use crate::session::Session;

pub(super) fn failover(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if args.len() == 2 && is(args.at(1), "ABORT") {
        if server.replication.failover.is_none() {
            return Err(Failure::new("ERR No failover in progress."));
        }
        server.abort_failover("Failover manually aborted");
        client.reply.ok();
        return Ok(());
    }
    let failover = read(server, args)?;
    check(server, &failover)?;
    server.begin_failover(failover);
    client.reply.ok();
    Ok(())
}

/// `[TO host port [FORCE]] [TIMEOUT milliseconds]`
fn read(server: &Server, args: Args<'_>) -> Outcome<Failover> {
    let mut failover = Failover::default();
    let mut at = 1;
    while at < args.len() {
        match (args.at(at), args.len() - at - 1) {
            (word, 1..) if is(word, "TIMEOUT") && failover.deadline.is_none() => {
                let millis = integer(args.at(at + 1))?;
                if millis <= 0 {
                    return Err(Failure::new("ERR FAILOVER timeout must be greater than 0"));
                }
                failover.deadline = Some(server.now.saturating_add(millis));
                at += 2;
            }
            (word, 2..) if is(word, "TO") && failover.target.is_none() => {
                let host = String::from_utf8_lossy(args.at(at + 1)).into_owned();
                failover.target = Some((host, integer(args.at(at + 2))?));
                at += 3;
            }
            (word, _) if is(word, "FORCE") && !failover.is_forced => {
                failover.is_forced = true;
                at += 1;
            }
            _ => return Err(SYNTAX),
        }
    }
    Ok(failover)
}

fn check(server: &Server, failover: &Failover) -> Outcome {
    let replication = &server.replication;
    if replication.failover.is_some() {
        return Err(Failure::new("ERR FAILOVER already in progress."));
    }
    if replication.is_replica() {
        return Err(Failure::new("ERR FAILOVER is not valid when server is a replica."));
    }
    if replication.replicas.is_empty() {
        return Err(Failure::new("ERR FAILOVER requires connected replicas."));
    }
    if failover.is_forced && (failover.deadline.is_none() || failover.target.is_none()) {
        return Err(Failure::new("ERR FAILOVER with force option requires both a timeout and target HOST and IP."));
    }
    let Some(target) = &failover.target else { return Ok(()) };
    let replicas = server.replicas();
    let Some((_, replica)) = replicas.iter().find(|(address, replica)| is_at(replica, address, target)) else {
        return Err(Failure::new("ERR FAILOVER target HOST and PORT is not a replica."));
    };
    match replica.stage {
        Stage::Loading | Stage::Online => Ok(()),
        _ => Err(Failure::new("ERR FAILOVER target replica is not online.")),
    }
}

/// What becomes of a master's demand that this server lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// It leads from now on.
    Take,
    /// It has done so before: the master did not hear it, and asks again.
    Taken,
}

/// `PSYNC id offset FAILOVER [FORCE]`: the master asks its replica to lead, and follows it from then on. Nothing is changed yet.
pub(super) fn answer_demand(replication: &Replication, args: Args<'_>) -> Outcome<Lead> {
    let (id, wanted) = (String::from_utf8_lossy(args.at(1)), integer(args.at(2)));
    crate::log::notice(format_args!("Failover request received for replid {}.", id.escape_debug()));
    decide(replication, &id, wanted, args.get(4).is_some_and(|word| is(word, "FORCE")))
}

/// `wanted`: the byte of the stream that the master lacks first.
fn decide(replication: &Replication, id: &str, wanted: Outcome<i64>, is_forced: bool) -> Outcome<Lead> {
    let had = wanted.and_then(|wanted| match u64::try_from(wanted) {
        Ok(wanted @ 1..) => Ok(wanted - 1),
        _ => Err(NOT_INTEGER),
    });
    if !replication.is_replica() {
        let has_taken = |(second, shared): &(String, u64)| {
            second.eq_ignore_ascii_case(id) && had.as_ref().is_ok_and(|had| is_forced || had <= shared)
        };
        return match replication.second.as_ref().is_some_and(has_taken) {
            true => Ok(Lead::Taken),
            false => Err(Failure::new("ERR PSYNC FAILOVER can't be sent to a master.")),
        };
    }
    if replication.failover.is_some() {
        return Err(Failure::new("NOMASTERLINK Can't SYNC while failing over"));
    }
    if !replication.id.eq_ignore_ascii_case(id) {
        return Err(Failure::new("ERR PSYNC FAILOVER replid must match my replid."));
    }
    let (had, has) = (had?, replication.applied());
    if has < had && !is_forced {
        // It begins as Redis's refusals do, by which the master knows them.
        return Err(Failure::text(format!("ERR PSYNC FAILOVER offset {had} is ahead of mine, which is {has}.")));
    }
    Ok(Lead::Take)
}

/// Leads from now on.
pub(super) fn take_lead(server: &mut Server, client: &Session) {
    server.stop_following();
    let from = super::client::describe(client, server.now);
    crate::log::notice(format_args!("MASTER MODE enabled (failover request from '{}')", from.trim_end()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::Master;

    const OLD: &str = "1111111111111111111111111111111111111111";
    const NEW: &str = "2222222222222222222222222222222222222222";
    /// Bytes of the stream that the target has.
    const HAS: i64 = 10;

    /// A replica.
    fn target() -> Replication {
        let mut replication = Replication::new(OLD.to_owned(), 0);
        replication.offset = HAS as u64 - 2;
        // What is not safe in its file yet is there all the same.
        replication.pending = b"xx".to_vec();
        replication.master = Some(Master::new("host".to_owned(), 1, 0));
        replication
    }

    /// It has taken the lead.
    fn leader() -> Replication {
        let mut replication = target();
        replication.master = None;
        replication.shift(NEW.to_owned());
        replication.offset += 1_000;
        replication
    }

    fn said(replication: &Replication, id: &str, had: i64, is_forced: bool) -> Result<Lead, String> {
        decide(replication, id, Ok(had + 1), is_forced).map_err(|failure| failure.to_string())
    }

    #[test]
    fn who_lacks_what_the_master_has_does_not_lead() {
        assert_eq!(said(&target(), OLD, HAS, false), Ok(Lead::Take));
        let refusal = said(&target(), OLD, HAS + 1, false).unwrap_err();
        assert!(refusal.starts_with("ERR PSYNC FAILOVER offset 11 is ahead of mine, which is 10"), "{refusal}");
        assert_eq!(said(&target(), OLD, HAS + 1, true), Ok(Lead::Take), "by force");
        for is_forced in [false, true] {
            assert!(said(&target(), NEW, HAS, is_forced).unwrap_err().contains("must match my replid"));
            assert_eq!(said(&target(), OLD, -2, is_forced), Err(NOT_INTEGER.to_string()));
        }
        assert_eq!(decide(&target(), OLD, Err(NOT_INTEGER), true), Err(NOT_INTEGER));
    }

    #[test]
    fn who_has_taken_the_lead_says_so_as_often_as_it_is_asked() {
        for is_forced in [false, true] {
            assert_eq!(said(&leader(), OLD, HAS, is_forced), Ok(Lead::Taken));
            for (id, had) in [(NEW, HAS), (OLD, -2), ("?", -2)] {
                assert!(said(&leader(), id, had, is_forced).unwrap_err().contains("can't be sent to a master"));
            }
        }
        assert!(said(&leader(), OLD, HAS + 1, false).unwrap_err().contains("can't be sent to a master"));
        assert_eq!(said(&leader(), OLD, HAS + 1, true), Ok(Lead::Taken), "it was forced to");
        let nobodys = Replication::new(NEW.to_owned(), 0);
        assert!(said(&nobodys, OLD, 0, true).unwrap_err().contains("can't be sent to a master"));
    }

    #[test]
    fn who_hands_a_lead_over_takes_none() {
        let mut replication = target();
        replication.failover = Some(Failover { is_in_progress: true, ..Failover::default() });
        assert!(said(&replication, OLD, HAS, true).unwrap_err().starts_with("NOMASTERLINK"));
    }
}
