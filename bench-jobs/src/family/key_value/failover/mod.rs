//! Failover, and every other fault: clients write and read while a member is killed or stopped.
//!
//! A client whose request fails gives it up and goes on with the next one, at another member ([`line`]). Who has the member struck, and when
//! requests may fail, is a [`Course`], which the first client of the first thread runs beside its load; who leads is asked in [`leader`]. What the
//! store may answer afterwards is in the thread's [`Doubts`](crate::content::doubts).

pub(super) mod leader;
pub(super) mod line;

use std::time::{Duration, Instant};

use storebench_crds::job::Phase;
use storebench_crds::workload::FaultMember;
use storebench_crds::workload::fault::{CATCH_UP, FAILED_REQUESTS, LOST_WRITES, UNKNOWN_WRITES};
use storebench_crds::workload::key_value::{FIRST_WRITE, KeyValueOperation, ReadLevel};
use tokio::time::sleep;

use super::KeyValue;
use super::store::{Connection, Store};
use crate::content::doubts::Excuse;
use crate::failure::Failure;
use crate::load::Context;
use crate::load::fault::Course;
use crate::load::session::Session;
use line::{Caller, Line};

/// How long a member may take to start, or to go on, and to have what the others have.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);
/// Before the member is asked again whether it has.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(2);
/// Written when the fault is over, to see when the member has that. No key of the load is named so.
const MARK: &[u8] = b"storebench-probe/caught-up";

pub(super) async fn load(key_value: &KeyValue, session: &Session, course: &Course) -> Result<(), Failure> {
    let measures = session.phase() == Phase::Measure;
    if !measures || key_value.seat.thread != 0 || session.place() != 0 {
        return requests(key_value, session, course).await;
    }
    let context = &key_value.seat.context;
    // It goes to whichever member answers.
    let line = &key_value.lines[session.connection() as usize];
    let run = course
        .run(&context.workload, choose(context, line), async |member: &str| catch_up(context, member, line).await);
    let (loaded, run) = tokio::join!(requests(key_value, session, course), run);
    loaded?;
    session.took(CATCH_UP, run?);
    let recovery = course.tell(session)?;
    if key_value.plan.parameters.operation == KeyValueOperation::Failover {
        session.took(FIRST_WRITE, recovery);
    }
    Ok(())
}

/// The endpoint of the member that is to be struck.
async fn choose(context: &Context, line: &Line) -> Result<String, Failure> {
    if let [only] = &context.endpoints[..] {
        return Ok(only.clone());
    }
    let leader = leader::find(line.spoken(), &context.endpoints, context.timeout).await?;
    match context.fault.as_ref().map(|fault| fault.member) {
        Some(FaultMember::Follower) => {
            let follower = context.endpoints.iter().find(|endpoint| **endpoint != leader);
            follower.cloned().ok_or_else(|| Failure::new("no member follows"))
        }
        Some(FaultMember::Leader) | None => Ok(leader),
    }
}

/// Waits until the member at `endpoint` has, in its own state, a write that was acknowledged after this is called.
async fn catch_up(context: &Context, endpoint: &str, line: &Line) -> Result<(), Failure> {
    let deadline = Instant::now() + CATCH_UP_TIMEOUT;
    let value = context.seed.to_le_bytes();
    let mut caller = Caller::new(line);
    while let Err(failure) = caller.ask(async |store: &mut Store| store.put(MARK, &value).await).await {
        if Instant::now() > deadline {
            return Err(failure);
        }
    }
    let mut last = Failure::new("it was not asked");
    while Instant::now() < deadline {
        match mark_at(context, endpoint, line).await {
            Ok(Some(found)) if *found == value => return Ok(()),
            Ok(_) => last = Failure::new("it has not what was written since"),
            Err(failure) => last = failure,
        }
        sleep(CATCH_UP_PAUSE).await;
    }
    Err(Failure::new(format_args!("{endpoint} has not caught up {CATCH_UP_TIMEOUT:?} after the fault: {last}")))
}

async fn mark_at(context: &Context, endpoint: &str, line: &Line) -> Result<Option<bytes::Bytes>, Failure> {
    let connection = Connection::open_once(line.spoken(), endpoint, context.timeout).await?;
    connection.store().get(MARK, ReadLevel::Eventual).await
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
            let (floor, may_miss) = (key_value.ledger.floor(slot), key_value.doubts.may_miss(slot));
            match caller.ask(async |store: &mut Store| store.get(&key, ReadLevel::Linearizable).await).await {
                Ok(found) => {
                    session.delivered(due, sent, Instant::now());
                    key_value.check_in_doubt(session, (slot, may_miss), floor, found.as_deref());
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
                    if course.was_over(sent) {
                        key_value.doubts.survived(slot);
                    }
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
    course.ended(Instant::now());
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

/// Reads everything that was written from every member, also from the one that was struck.
pub(super) async fn verify(key_value: &KeyValue, session: &Session) -> Result<(), Failure> {
    let context = &key_value.seat.context;
    let Some(line) = key_value.lines.first() else { return Ok(()) };
    let mut members: Vec<Store> = Vec::with_capacity(context.endpoints.len());
    for endpoint in &context.endpoints {
        members.push(Connection::open(line.spoken(), endpoint, context.timeout).await?.store());
    }
    let mut key = Vec::new();
    for slot in key_value.keys.owned_slots(session.place()) {
        if key_value.ledger.sent(slot) == 0 {
            continue;
        }
        let (floor, may_miss) = (key_value.ledger.floor(slot), key_value.doubts.may_miss(slot));
        key_value.name(slot, &mut key);
        let mut is_lost = false;
        for member in &mut members {
            let mut batch = session.begin(1);
            let found = member.get(&key, ReadLevel::Linearizable).await?;
            session.answered_uncounted(&mut batch, 1);
            let excuse = key_value.check_in_doubt(session, (slot, may_miss), floor, found.as_deref());
            is_lost |= excuse == Some(Excuse::MayBeLost);
        }
        session.count(LOST_WRITES, u64::from(is_lost));
    }
    Ok(())
}

impl KeyValue {
    /// As [`KeyValue::check`], where what a fault leaves in doubt is right, too.
    fn check_in_doubt(
        &self,
        session: &Session,
        (slot, may_miss): (u32, bool),
        floor: u32,
        found: Option<&[u8]>,
    ) -> Option<Excuse> {
        let Err(mismatch) = self.ledger.check(&self.values, slot, floor, found) else {
            session.verified(1);
            return None;
        };
        match self.doubts.judge(&self.ledger, &self.values, (slot, may_miss), found, mismatch.detail) {
            Ok(excuse) => {
                session.verified(1);
                Some(excuse)
            }
            Err(detail) => {
                session.wrong(self.names.text(mismatch.key), detail);
                None
            }
        }
    }
}
