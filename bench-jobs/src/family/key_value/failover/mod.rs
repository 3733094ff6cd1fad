//! Failover: clients write and read while the leader is killed and started again.
//!
//! A client whose request fails gives it up and goes on with the next one, at another member ([`line`]). Who has the leader killed, and what
//! is measured of it, is a [`course`], which the first client of the first thread runs beside its load; who leads is asked in [`leader`].
//!
//! A request may fail from the moment at which the kill is asked for until the killed member has caught up; before and after that it fails
//! the store. Of a write that failed after it was sent nobody knows whether it was made: it may be found, and may also be made later,
//! over a newer one that was acknowledged. So a read must find the newest acknowledged version, a newer one, or one of those in doubt.

pub(super) mod course;
pub(super) mod leader;
pub(super) mod line;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use storebench_crds::job::Phase;
use storebench_crds::workload::key_value::{FAILED_REQUESTS, ReadLevel, UNKNOWN_WRITES};

use super::KeyValue;
use super::store::{Connection, Store};
use crate::failure::Failure;
use crate::load::session::Session;
use course::Course;
use line::Caller;

/// The versions of each slot of which nobody knows whether they were written.
#[derive(Debug, Default)]
pub(super) struct Doubts(RefCell<BTreeMap<u32, BTreeSet<u32>>>);

impl Doubts {
    fn add(&self, slot: u32, version: u32) {
        self.0.borrow_mut().entry(slot).or_default().insert(version);
    }

    fn has(&self, slot: u32, version: u32) -> bool {
        self.0.borrow().get(&slot).is_some_and(|versions| versions.contains(&version))
    }
}

pub(super) async fn load(key_value: &KeyValue, session: &Session) -> Result<(), Failure> {
    let Some(course) = key_value.plan.course.as_deref() else {
        return Err(Failure::new("a failover without a course"));
    };
    let measures = session.phase() == Phase::Measure;
    if !measures || key_value.seat.thread != 0 || session.place() != 0 {
        return requests(key_value, session, course).await;
    }
    let line = &key_value.lines[session.connection() as usize];
    let run = course.run(&key_value.seat.context, line, session);
    let (loaded, run) = tokio::join!(requests(key_value, session, course), run);
    loaded.and(run)?;
    course.tell(session)
}

async fn requests(key_value: &KeyValue, session: &Session, course: &Course) -> Result<(), Failure> {
    let mut caller = Caller::new(&key_value.lines[session.connection() as usize]);
    let read_percent = key_value.plan.read_percent();
    let mut picker = key_value.picker(session);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    while let Some(mut batch) = session.next().await {
        let (sent, due) = (batch.sent(), session.due(&batch));
        // How long an answer is waited for is decided here, and none is not the end.
        session.answered_uncounted(&mut batch, 1);
        if read_percent > 0 && picker.is_read(read_percent) {
            let slot = picker.slot_to_read();
            key_value.name(slot, &mut key);
            let floor = key_value.ledger.floor(slot);
            match caller.ask(async |store: &mut Store| store.get(&key, ReadLevel::Linearizable).await).await {
                Ok(found) => {
                    session.delivered(due, sent, Instant::now());
                    key_value.check_in_doubt(session, slot, floor, found.as_deref());
                }
                Err(failure) => gave_up(session, course, sent, failure)?,
            }
        } else {
            let slot = picker.slot_to_write();
            let version = key_value.next_version(slot, &mut key, &mut value);
            match caller.ask(async |store: &mut Store| store.put(&key, &value).await).await {
                Ok(()) => {
                    let now = Instant::now();
                    session.delivered(due, sent, now);
                    key_value.ledger.acknowledge(slot, version);
                    course.acknowledged(sent, now);
                }
                Err(failure) => {
                    if !failure.has_not_happened() {
                        key_value.doubts.add(slot, version);
                        session.count(UNKNOWN_WRITES, 1);
                    }
                    gave_up(session, course, sent, failure)?;
                }
            }
        }
    }
    Ok(())
}

/// Counts a request that failed when it may, and fails the store when it may not.
fn gave_up(session: &Session, course: &Course, sent: Instant, failure: Failure) -> Result<(), Failure> {
    if !course.may_fail(sent) {
        return Err(failure);
    }
    session.count(FAILED_REQUESTS, 1);
    Ok(())
}

/// Reads everything that was written from every member, also from the one that was killed.
pub(super) async fn verify(key_value: &KeyValue, session: &Session) -> Result<(), Failure> {
    let context = &key_value.seat.context;
    let Some(line) = key_value.lines.first() else { return Ok(()) };
    let mut members: Vec<Store> = Vec::with_capacity(context.endpoints.len());
    for endpoint in &context.endpoints {
        members.push(Connection::open(line.spoken(), endpoint, context.timeout).await?.store());
    }
    let mut key = Vec::new();
    for slot in key_value.keys.owned_slots(session.place()) {
        let floor = key_value.ledger.floor(slot);
        key_value.name(slot, &mut key);
        for member in &mut members {
            let mut batch = session.begin(1);
            let found = member.get(&key, ReadLevel::Linearizable).await?;
            session.answered_uncounted(&mut batch, 1);
            key_value.check_in_doubt(session, slot, floor, found.as_deref());
        }
    }
    Ok(())
}

impl KeyValue {
    /// As [`KeyValue::check`], where a version of which nobody knows whether it was written is right, too.
    fn check_in_doubt(&self, session: &Session, slot: u32, floor: u32, found: Option<&[u8]>) {
        let said = found.and_then(|found| self.values.read_back(found));
        match said {
            Some((key, version)) if key == self.keys.key(slot) && self.doubts.has(slot, version) => session.verified(1),
            _ => self.check(session, slot, floor, found),
        }
    }
}
