//! A lead that is handed over, step by step: see [`crate::replication::failover`].

use super::{PausePurpose, Request, Server};
use crate::log;
use crate::replication::failover::is_at;
use crate::replication::{Failover, Replica, Stage};
use crate::waiting;

impl Server {
    /// A replica is being asked to lead.
    pub fn is_handing_over(&self) -> bool {
        self.replication.failover.as_ref().is_some_and(|failover| failover.is_in_progress)
    }

    /// Begins to hand the lead over. What may be asked for was checked.
    pub fn begin_failover(&mut self, failover: Failover) {
        match &failover.target {
            Some((host, port)) => log::notice(format_args!("FAILOVER requested to {host}:{port}.")),
            None => log::notice("FAILOVER requested to any replica."),
        }
        self.replication.failover = Some(failover);
        self.pause_writes(PausePurpose::Failover);
    }

    /// In each turn of the loop, once all that was changed in it is on its way to the replicas.
    pub fn step_failover(&mut self) {
        let Some(failover) = self.replication.failover.as_ref().filter(|failover| !failover.is_in_progress) else {
            return;
        };
        if failover.deadline.is_some_and(|deadline| deadline <= self.now) {
            return match failover.target.clone().filter(|_| failover.is_forced) {
                Some((host, port)) => {
                    log::notice(format_args!("FAILOVER to {host}:{port} time out exceeded, failing over."));
                    self.hand_over_to(host, port, true);
                }
                None => self.abort_failover("Replica never caught up before timeout"),
            };
        }
        let is_meant = |address: &str, replica: &Replica| {
            failover.target.as_ref().is_none_or(|target| is_at(replica, address, target))
        };
        let is_ready = |address: &str, replica: &Replica| {
            replica.stage == Stage::Online && self.has_everything(replica) && is_meant(address, replica)
        };
        let found = self.replicas().into_iter().find(|(address, replica)| is_ready(address, replica));
        if let Some((host, replica)) = found {
            let port = i64::from(replica.port);
            log::notice(format_args!("Failover target {host}:{port} is synced, failing over."));
            self.hand_over_to(host, port, false);
        }
    }

    /// Follows the target, and asks it to lead. Replicas stay until the new lead is there: they know this history, and it knows them.
    /// Only who is forced to lead may lack something.
    fn hand_over_to(&mut self, host: String, port: i64, is_forced: bool) {
        if let Some(failover) = &mut self.replication.failover {
            failover.is_forced = is_forced;
            failover.target = Some((host.clone(), port));
            failover.is_in_progress = true;
        }
        // It came from a replica.
        let port = u16::try_from(port).unwrap_or_default();
        self.settings.set_master(Some((&host, port)));
        self.follow(host, port);
        waiting::end_all(self);
        self.requests.push(Request::DropMaster);
    }

    /// The lead was taken.
    pub fn end_failover(&mut self) {
        if self.replication.failover.take().is_some() {
            self.end_pause(PausePurpose::Failover);
        }
    }

    /// All stays as it was: this server leads.
    pub fn abort_failover(&mut self, why: &str) {
        let Some(failover) = &self.replication.failover else { return };
        match &failover.target {
            Some((host, port)) => log::notice(format_args!("FAILOVER to {host}:{port} aborted: {why}")),
            None => log::notice(format_args!("FAILOVER to any replica aborted: {why}")),
        }
        if failover.is_in_progress {
            self.stop_following();
        }
        self.end_failover();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;

    const HOST: &str = "10.0.0.1";

    /// A master with replicas at ports 1, 2 and so on, which have acknowledged so many bytes.
    fn master(acknowledged: &[u64]) -> Server {
        let mut server = Server::new(crate::settings::Settings::default(), 1_000, 1);
        server.replication.offset = 10;
        server.replication.begin_backlog(1000);
        server.choose_effects();
        for (slot, acknowledged) in acknowledged.iter().enumerate() {
            let mut session = Session::new(slot as u64 + 1, slot, format!("{HOST}:5000"), "b:1".to_owned(), 0);
            session.replica = Some(Box::new(Replica {
                stage: Stage::Online,
                port: slot as u16 + 1,
                acknowledged: *acknowledged,
                ..Replica::default()
            }));
            server.replication.replicas.push(slot);
            server.sessions.push(Some(Box::new(session)));
        }
        server
    }

    fn state(server: &Server) -> &'static str {
        Failover::state_word(server.replication.failover.as_ref())
    }

    fn begin(server: &mut Server, port: Option<i64>, deadline: Option<i64>, is_forced: bool) {
        let target = port.map(|port| (HOST.to_owned(), port));
        server.begin_failover(Failover { target, deadline, is_forced, ..Failover::default() });
        server.step_failover();
    }

    fn followed(server: &Server) -> Option<(String, u16)> {
        server.replication.master.as_ref().map(|master| (master.host.clone(), master.port))
    }

    #[test]
    fn the_lead_goes_to_who_has_everything_and_to_nobody_else() {
        let mut server = master(&[9, 10]);
        let id = server.replication.id.clone();
        begin(&mut server, Some(1), None, false);
        assert_eq!((state(&server), followed(&server)), ("waiting-for-sync", None));
        assert!(server.is_paused());
        server.sessions[0].as_mut().unwrap().replica.as_mut().unwrap().acknowledged = 10;
        server.step_failover();
        assert_eq!((state(&server), followed(&server)), ("failover-in-progress", Some((HOST.to_owned(), 1))));
        assert_eq!(server.replication.id, id, "the target is asked for by this name");
        assert!(server.requests.contains(&Request::DropMaster));
        assert!(server.sessions.iter().flatten().all(|session| !session.is_killed), "nobody is sent away");
        server.end_failover();
        assert_eq!((state(&server), server.is_paused()), ("no-failover", false));

        let mut server = master(&[9, 10]);
        begin(&mut server, None, None, false);
        assert_eq!(followed(&server), Some((HOST.to_owned(), 2)), "the first who has everything");
        server.abort_failover("no");
        assert_eq!((state(&server), followed(&server), server.is_paused()), ("no-failover", None, false));
        assert_ne!(server.replication.id, id, "a history of its own begins");
    }

    #[test]
    fn who_still_reads_its_keys_or_lacks_what_is_not_safe_here_does_not_lead() {
        let mut server = master(&[10]);
        server.sessions[0].as_mut().unwrap().replica.as_mut().unwrap().stage = Stage::Loading;
        begin(&mut server, None, None, false);
        assert_eq!(state(&server), "waiting-for-sync");
        let mut server = master(&[10]);
        server.replication.pending = b"x".to_vec();
        begin(&mut server, None, None, false);
        assert_eq!(state(&server), "waiting-for-sync");
    }

    #[test]
    fn the_deadline_ends_it_or_forces_it() {
        for (is_forced, expected) in [(false, "no-failover"), (true, "failover-in-progress")] {
            let mut server = master(&[9]);
            begin(&mut server, Some(1), Some(1_100), is_forced);
            assert_eq!(state(&server), "waiting-for-sync");
            server.now = 1_100;
            server.step_failover();
            assert_eq!((state(&server), followed(&server).is_some()), (expected, is_forced));
            assert_eq!(server.is_paused(), is_forced);
        }
    }

    #[test]
    fn who_has_everything_before_the_deadline_is_not_allowed_to_lose_it() {
        for (acknowledged, is_forced) in [(10, false), (9, true)] {
            let mut server = master(&[acknowledged]);
            begin(&mut server, Some(1), Some(1_100), true);
            server.now = 1_100;
            server.step_failover();
            assert_eq!(server.replication.failover.as_ref().map(|failover| failover.is_forced), Some(is_forced));
        }
    }
}
