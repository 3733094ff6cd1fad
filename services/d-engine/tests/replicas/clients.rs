//! What clients ask.

use d_engine::state::Command;
use d_engine_client::{Operation, Stamp, Transaction};
use replog::{ReadLevel, Role};

use crate::bugs::Bug;
use crate::world::{ADDITIONS, Asked, MEMBERS, MustSee, World, one_in};

impl World {
    /// A client asks somebody who says that it leads.
    pub fn ask(&mut self) {
        let now = self.now();
        let missing: Vec<u64> =
            (1..=ADDITIONS).filter(|sequence| !self.answers.contains_key(sequence)).take(3).collect();
        let awaited_from = missing.first().copied().unwrap_or(ADDITIONS + 1);
        // Also what was answered long ago, as a client that was stopped may.
        let again = 1 + self.random.below(ADDITIONS);
        let again = if again < awaited_from || missing.contains(&again) { Some(again) } else { None };
        let wanted = missing.get(self.random.below(3) as usize).copied().or(again);
        let choice = self.random.below(8);
        // Of the newest leases, which may have ended.
        let lease = self.leases.len().checked_sub(1 + self.random.below(3) as usize).map_or(1, |at| self.leases[at]);
        let key = vec![b'a' + self.random.below(8) as u8];
        let ttl_millis = self.random.below(3) * 100;
        let (asked, command) = match (self.session, choice) {
            (None, _) => (Asked::Open, Command::OpenSession),
            (Some(session), 0..=2) => {
                let Some(sequence) = wanted else { return };
                let stamp = Stamp { session, sequence, awaited_from: awaited_from.min(ADDITIONS) };
                let add = Operation::Add { key: "sum".into(), delta: 1 };
                (Asked::Add(sequence), Command::Write(Transaction::of(add), Some(stamp)))
            }
            (_, 3) if one_in(&mut self.random, 4) => {
                (Asked::Other, Command::Renew(self.random.below(self.time / 1000 + 1)))
            }
            (_, 3) => (Asked::Other, Command::Expire),
            (_, 6) => {
                let operation = match self.random.below(4) {
                    0 => Operation::Revoke { lease },
                    1 => Operation::KeepAlive { lease },
                    _ => Operation::Grant { ttl_millis: 50 + self.random.below(200) },
                };
                (Asked::Lease, Command::Write(Transaction::of(operation), None))
            }
            (_, 7) => (Asked::Other, Command::Write(Transaction::put_with_lease(key, vec![8; 20], lease), None)),
            (_, 4) => (Asked::Other, Command::Write(Transaction::delete(key), None)),
            _ => {
                let put = Operation::Put { key: key.into(), value: vec![7; 40].into(), ttl_millis };
                (Asked::Other, Command::Write(Transaction::of(put), None))
            }
        };
        let must_see = MustSee { sum: self.answers.len() as i64, index: self.acknowledged };
        let reader = self.random.below(MEMBERS) as usize;
        let level = if one_in(&mut self.random, 2) { ReadLevel::Linearizable } else { ReadLevel::Lease };
        let level = if self.bug == Some(Bug::ReadsLocally) { ReadLevel::Eventual } else { level };
        if let Some(process) = &mut self.hosts[reader].process
            && let Ok(read) = process.log.read(level, 0, now)
        {
            process.reads.insert(read, must_see);
        }
        self.drain(reader as u64 + 1);
        let leaders = self.who_is(Role::Leader);
        if !leaders.is_empty() && self.time >= self.quiet_until {
            // An old one may not know yet that it is not the leader any more.
            let leader = self.random.pick(&leaders);
            if let Some(process) = &mut self.hosts[leader as usize - 1].process
                && let Ok(proposed) = process.log.propose(vec![command.encode()], now)
            {
                process.proposals.push((proposed, asked));
            }
            self.drain(leader);
        }
    }
}
