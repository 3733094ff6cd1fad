//! Lock: clients contend for locks. Who has one writes the key that it guards, fenced by the lock, and releases it.
//!
//! What is checked is seen by one process, and by one order of its own: a client notes that it holds a lock after the store has said so, and
//! that it does not before it releases it. Whoever is told meanwhile that it has the same lock is told wrongly. Tokens must rise with each
//! holder, as the holders are noted; a fenced write must be taken, since nobody else may have the lock; and at the end the guarded key has
//! the value of its last holder, so that no write came after one that it must precede.
//!
//! A lease is kept alive also while its client waits for its turn in an open loop. One that ended because this loader was late itself
//! (it was stopped, or had no processor) is no fault of the store: until when each lease is alive is noted, what happens to a lock after that is
//! counted and not judged, and the client takes another lease.

mod line;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use storebench_crds::workload::key_value::{EXPIRED_LEASES, ReadLevel};

use super::KeyValue;
use super::store::Store;
use crate::content::seeds::mix;
use crate::failure::Failure;
use crate::load::session::{Batch, Session};
use line::{Held, Line};

/// What this process knows of one lock.
#[derive(Debug, Default)]
struct Known {
    /// The client that holds it, and until when its lease is surely alive.
    holder: Option<(u64, Instant)>,
    /// Of the newest holder.
    token: u64,
    /// The newest version of the guarded key that was acknowledged.
    version: u32,
}

/// All locks, as the clients of all threads see them.
#[derive(Debug)]
pub(super) struct Locks(Vec<Mutex<Known>>);

impl Locks {
    pub(super) fn new(count: u32) -> Arc<Self> {
        Arc::new(Self((0..count).map(|_| Mutex::default()).collect()))
    }

    fn known(&self, number: u32) -> Option<MutexGuard<'_, Known>> {
        // Nothing panics while it is held.
        self.0.get(number as usize).map(|known| known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A client, whose lease is alive until some moment, has heard at `now` that it holds a lock. Errors: what must not be.
    fn acquired(&self, number: u32, (client, until): (u64, Instant), token: u64, now: Instant) -> Result<(), String> {
        let Some(mut known) = self.known(number) else { return Ok(()) };
        let other = known.holder.replace((client, until));
        let before = known.token;
        known.token = before.max(token);
        if let Some((other, until)) = other
            && now < until
        {
            return Err(format!("client {client} was given the lock while client {other} held it"));
        }
        if before >= token {
            return Err(format!("client {client} was given token {token}, but a holder before it had {before}"));
        }
        Ok(())
    }

    /// A client is about to release a lock.
    fn releases(&self, number: u32, client: u64) {
        if let Some(mut known) = self.known(number) {
            // Who was given it wrongly besides has noted itself.
            known.holder.take_if(|(holder, _)| *holder == client);
        }
    }

    fn version(&self, number: u32) -> u32 {
        self.known(number).map_or(0, |known| known.version)
    }

    fn wrote(&self, number: u32, version: u32) {
        if let Some(mut known) = self.known(number) {
            known.version = known.version.max(version);
        }
    }
}

pub(super) async fn load(key_value: &KeyValue, session: &Session) -> Result<(), Failure> {
    let Some(locks) = key_value.plan.locks.as_deref() else { return Err(Failure::new("locks without locks")) };
    let connection = &key_value.connections[session.connection() as usize].1;
    let mut line = Line::open(connection, key_value.seat.context.timeout).await?;
    let me = u64::from(session.client()) + 1;
    let mut turn = mix(key_value.seat.context.seed, me);
    let count = locks.0.len() as u64;
    loop {
        let Some(mut batch) = next(session, &mut line).await? else { break };
        turn = turn.wrapping_add(1);
        let number = (turn % count) as u32;
        let name = lock_name(key_value, number);
        let acquired = line.acquire(&name).await;
        let answered = Instant::now();
        if acquired.is_err() && answered >= line.alive_until() {
            count_end(session, &mut line);
            session.answered_uncounted(&mut batch, 1);
            continue;
        }
        let held = acquired?;
        match locks.acquired(number, (me, line.alive_until()), held.token(), answered) {
            Ok(()) => session.verified(1),
            Err(detail) => session.wrong(name_text(&name), detail),
        }
        session.answered(&mut batch, 1, answered);
        hold(key_value, session, &mut line, &held, locks, number).await?;
        locks.releases(number, me);
        let mut batch = session.begin(1);
        let released = line.release(held).await;
        if released.is_err() && Instant::now() >= line.alive_until() {
            count_end(session, &mut line);
        } else {
            released?;
        }
        session.answered_uncounted(&mut batch, 1);
    }
    line.close().await
}

/// Waits for the next request with a lease that is alive. What is done for the lease is done before the request is due, or makes it leave late, which
/// the loader holds against itself.
async fn next(session: &Session, line: &mut Line) -> Result<Option<Batch>, Failure> {
    stay_alive(session, line).await?;
    let next = session.next();
    tokio::pin!(next);
    let batch = loop {
        tokio::select! {
            biased;
            batch = &mut next => break batch,
            () = line.until_due() => stay_alive(session, line).await?,
        }
    };
    // This loader may have been stopped since.
    if batch.is_some() {
        stay_alive(session, line).await?;
    }
    Ok(batch)
}

async fn stay_alive(session: &Session, line: &mut Line) -> Result<(), Failure> {
    session.count(EXPIRED_LEASES, u64::from(line.stay_alive().await?));
    Ok(())
}

/// Counts that the lease ended, once.
fn count_end(session: &Session, line: &mut Line) {
    session.count(EXPIRED_LEASES, u64::from(line.notice_end()));
}

/// Writes the guarded key as who holds the lock, and as nobody else can.
async fn hold(
    key_value: &KeyValue,
    session: &Session,
    line: &mut Line,
    held: &Held,
    locks: &Locks,
    number: u32,
) -> Result<(), Failure> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    key_value.names.write(number, &mut key);
    let version = locks.version(number) + 1;
    key_value.values.write(number, version, &mut value);
    let mut batch = session.begin(1);
    let written = line.put_fenced(held, &key, &value).await?;
    session.answered_uncounted(&mut batch, 1);
    if written {
        locks.wrote(number, version);
        session.verified(1);
    } else if Instant::now() >= line.alive_until() {
        // The lease may have ended before the write came, which is as it must be.
        count_end(session, line);
    } else {
        let detail = format!("a write fenced by token {} was refused to the holder of the lock", held.token());
        session.wrong(key_value.names.text(number), detail);
    }
    Ok(())
}

/// Reads the guarded keys: each thread some of them, each at every member that answers strong reads.
pub(super) async fn verify(key_value: &KeyValue, session: &Session) -> Result<(), Failure> {
    let Some(locks) = key_value.plan.locks.as_deref() else { return Ok(()) };
    if key_value.seat.thread != 0 || session.place() != 0 {
        return Ok(());
    }
    let mut members: Vec<Store> = key_value.members.iter().map(super::store::Connection::store).collect();
    let mut key = Vec::new();
    for number in 0..locks.0.len() as u32 {
        let version = locks.version(number);
        if version == 0 {
            continue;
        }
        key.clear();
        key_value.names.write(number, &mut key);
        for member in &mut members {
            let mut batch = session.begin(1);
            let found = member.get(&key, ReadLevel::Linearizable).await?;
            session.answered_uncounted(&mut batch, 1);
            match found {
                Some(found) if key_value.values.matches(number, version, &found) => session.verified(1),
                Some(found) => {
                    let found = key_value.values.describe(&found);
                    let detail = format!("the last holder of the lock wrote version {version}, found {found}");
                    session.wrong(key_value.names.text(number), detail);
                }
                None => session.wrong(key_value.names.text(number), "what holders of its lock wrote is not there"),
            }
        }
    }
    Ok(())
}

fn lock_name(key_value: &KeyValue, number: u32) -> Vec<u8> {
    let mut name = b"lock-".to_vec();
    key_value.names.write(number, &mut name);
    name
}

fn name_text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A client whose lease is alive for another minute.
    fn alive(client: u64) -> (u64, Instant) {
        (client, Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn two_holders_are_noticed() {
        let (locks, now) = (Locks::new(2), Instant::now());
        assert_eq!(locks.acquired(0, alive(1), 10, now), Ok(()));
        assert_eq!(locks.acquired(1, alive(2), 5, now), Ok(()), "another lock");
        assert!(locks.acquired(0, alive(3), 11, now).unwrap_err().contains("while client 1 held it"));
        locks.releases(0, 1);
        assert!(locks.acquired(0, alive(4), 12, now).is_err(), "who was given it wrongly still has it");
    }

    #[test]
    fn a_holder_whose_lease_this_loader_let_end_is_none() {
        let (locks, now) = (Locks::new(1), Instant::now());
        assert_eq!(locks.acquired(0, (1, now + Duration::from_secs(6)), 10, now), Ok(()));
        assert!(locks.acquired(0, alive(2), 11, now + Duration::from_secs(5)).is_err());
        assert_eq!(locks.acquired(0, (3, now), 12, now + Duration::from_secs(61)), Ok(()));
        let said = locks.acquired(0, alive(4), 12, now + Duration::from_secs(1)).unwrap_err();
        assert!(said.contains("but a holder before it had 12"), "tokens rise all the same: {said}");
    }

    #[test]
    fn tokens_that_do_not_rise_are_noticed() {
        let locks = Locks::new(1);
        for (client, token, is_right) in [(1, 10, true), (2, 10, false), (3, 9, false), (4, 11, true)] {
            assert_eq!(locks.acquired(0, alive(client), token, Instant::now()).is_ok(), is_right, "{token}");
            locks.releases(0, client);
        }
    }
}
