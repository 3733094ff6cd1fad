//! Exactly once: what was answered in a session is kept until the client says that it has the answer, and given again when the same
//! write comes again. A session that nobody has used for [`IDLE_MILLIS`] ends; then its writes are refused, which does no harm.
//!
//! An outcome in the table of answers is: index (8), term (8), then 0 and whether the compares were true (1) and a list of results, or
//! the number of a refusal (see [`Refusal`]) and for some of them more. A result is: 1 put; 2 deleted: whether it was there (1); 3 got:
//! 0, or 1 and revision (8), end (8), key, value (strings), or 2 and the same with the lease (8) in front; 4 sum (8); 5 attached: whether
//! the key was there (1); 6 a lease: 0, or 1 and number (8), time to live (8), end (8); 7 revoked: whether the lease was there (1).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use d_engine_client::{Applied as Results, KeyValue, Lease, OperationResult, Stamp};

use super::apply::Applied;
use super::bounds::{ALL_BYTES_MAX, ANSWER_BYTES, ANSWERS_MAX, IDLE_MILLIS, SESSION_BYTES_MAX, USER_BYTES_MAX};
use super::codec::{Malformed, Reader, put_list, put_number, put_string};
use super::owners::Owners;
use super::refusal::Refusal;
use super::rows::{numbers, pair, read_all, single};
use super::storage::{Storage, StorageError, Table};

/// When a session was used last whose user was removed: it ends, whatever else is renewed. None was used then.
const RELEASED: u64 = 0;

const WHAT: &str = "a session's row";

/// What is known of a write before it is applied.
pub(super) enum Before {
    /// It is new.
    New(Session),
    /// It was applied, and answered so.
    Answered(Applied),
    /// It is not applied.
    Refused(Refusal),
}

/// A session's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    used_millis: u64,
    awaited_from: u64,
    kept: u32,
    /// The user that opened it; empty: nobody.
    pub(super) owner: Bytes,
}

impl Session {
    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(20);
        put_number(&mut out, self.used_millis);
        put_number(&mut out, self.awaited_from);
        out.extend_from_slice(&self.kept.to_le_bytes());
        if !self.owner.is_empty() {
            put_string(&mut out, &self.owner);
        }
        out.into()
    }

    fn decode(row: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(row, WHAT);
        let (used_millis, awaited_from, kept) = (reader.number()?, reader.number()?, reader.small()?);
        Ok(Self { used_millis, awaited_from, kept, owner: reader.last_string()? })
    }
}

/// What the answers of sessions take: of each session that has some, of each user's sessions, and of all. It follows from the tables of
/// answers and of sessions, so that members with the same tables decide alike.
#[derive(Debug, Default)]
pub(super) struct Room {
    sessions: BTreeMap<u64, u64>,
    users: BTreeMap<Bytes, u64>,
    all: u64,
}

impl Room {
    /// Of what is kept.
    pub(super) fn of(storage: &impl Storage) -> Result<Self, StorageError> {
        let (mut room, mut owners) = (Self::default(), BTreeMap::new());
        each(storage, |number, session| {
            if !session.owner.is_empty() {
                owners.insert(number, session.owner);
            }
        })?;
        let nobody = Bytes::new();
        storage.scan(Table::Answers, &[], None, &mut |key, answer| {
            let session = numbers(key).0;
            room.take(session, owners.get(&session).unwrap_or(&nobody), answer);
            ControlFlow::Continue(())
        })?;
        Ok(room)
    }

    fn take(&mut self, session: u64, owner: &Bytes, answer: &Bytes) {
        let bytes = answer.len() as u64 + ANSWER_BYTES;
        *self.sessions.entry(session).or_default() += bytes;
        self.all += bytes;
        if owner.is_empty() {
            return;
        }
        match self.users.get_mut(owner) {
            Some(of_user) => *of_user += bytes,
            // Its name alone, and not the row that it came with.
            None => drop(self.users.insert(Bytes::copy_from_slice(owner), bytes)),
        }
    }

    fn give(&mut self, session: u64, owner: &Bytes, bytes: u64) {
        self.all = self.all.saturating_sub(bytes);
        give_of(&mut self.sessions, &session, bytes);
        give_of(&mut self.users, owner, bytes);
    }

    fn has_some(&self, session: u64, owner: &Bytes) -> bool {
        self.all < ALL_BYTES_MAX
            && self.sessions.get(&session).is_none_or(|bytes| *bytes < SESSION_BYTES_MAX)
            && self.users.get(owner).is_none_or(|bytes| *bytes < USER_BYTES_MAX)
    }

    /// A user is removed: what its sessions keep is nobody's until they end.
    pub(super) fn release(&mut self, owner: &Bytes) {
        self.users.remove(owner);
    }
}

fn give_of<K: Ord>(room: &mut BTreeMap<K, u64>, whose: &K, bytes: u64) {
    if let Some(taken) = room.get_mut(whose) {
        *taken = taken.saturating_sub(bytes);
        if *taken == 0 {
            room.remove(whose);
        }
    }
}

fn damaged(error: Malformed) -> StorageError {
    StorageError(error.to_string())
}

/// Opens a session.
pub(super) fn open(
    storage: &mut impl Storage,
    number: u64,
    time_millis: u64,
    owner: &Bytes,
) -> Result<(), StorageError> {
    let used_millis = time_millis.max(RELEASED + 1);
    let session = Session { used_millis, awaited_from: 1, kept: 0, owner: owner.clone() };
    storage.put(Table::Sessions, single(number), session.encode())?;
    storage.put(Table::Idle, pair(used_millis, number), Bytes::new())
}

/// Whose a session is, if it is there; empty: nobody's.
pub(super) fn owner(storage: &impl Storage, number: u64) -> Result<Option<Bytes>, StorageError> {
    let row = storage.get(Table::Sessions, &single(number))?;
    Ok(row.map(Session::decode).transpose().map_err(damaged)?.map(|session| session.owner))
}

/// Ends a session; how many answers it had, if it was there.
pub(super) fn close(
    storage: &mut impl Storage,
    room: &mut Room,
    owners: &mut Owners,
    number: u64,
) -> Result<Option<u32>, StorageError> {
    let Some(row) = storage.get(Table::Sessions, &single(number))? else { return Ok(None) };
    let session = Session::decode(row).map_err(damaged)?;
    storage.delete(Table::Sessions, &single(number))?;
    storage.delete(Table::Idle, &pair(session.used_millis, number))?;
    owners.closed(&session.owner);
    forget(storage, room, (number, &session.owner), 0, u64::MAX).map(Some)
}

/// Takes out the answers to writes from one to before another; how many.
fn forget(
    storage: &mut impl Storage,
    room: &mut Room,
    (number, owner): (u64, &Bytes),
    from: u64,
    to: u64,
) -> Result<u32, StorageError> {
    let (mut gone, mut bytes) = (Vec::new(), 0);
    storage.scan(Table::Answers, &pair(number, from), Some(&pair(number, to)), &mut |key, answer| {
        gone.push(key.clone());
        bytes += answer.len() as u64 + ANSWER_BYTES;
        ControlFlow::Continue(())
    })?;
    for key in &gone {
        storage.delete(Table::Answers, key)?;
    }
    room.give(number, owner, bytes);
    Ok(gone.len() as u32)
}

/// How many answers a session has.
pub(super) fn answers(storage: &impl Storage, number: u64) -> Result<usize, StorageError> {
    let row = storage.get(Table::Sessions, &single(number))?.map(Session::decode).transpose().map_err(damaged)?;
    Ok(row.map_or(0, |session| session.kept as usize))
}

/// Looks a write up, and forgets what its client has no use for any more.
pub(super) fn begin(
    storage: &mut impl Storage,
    room: &mut Room,
    stamp: &Stamp,
    time_millis: u64,
) -> Result<Before, StorageError> {
    let Some(row) = storage.get(Table::Sessions, &single(stamp.session))? else {
        return Ok(Before::Refused(Refusal::NoSession));
    };
    let mut session = Session::decode(row).map_err(damaged)?;
    if stamp.sequence < session.awaited_from || stamp.sequence == u64::MAX {
        return Ok(Before::Refused(Refusal::Forgotten));
    }
    if let Some(row) = storage.get(Table::Answers, &pair(stamp.session, stamp.sequence))? {
        return Ok(Before::Answered(decode(row).map_err(damaged)?));
    }
    // Nobody waits for what is below; and never above this very write.
    let awaited_from = stamp.awaited_from.clamp(session.awaited_from, stamp.sequence);
    let whose = (stamp.session, &session.owner);
    session.kept -= forget(storage, room, whose, session.awaited_from, awaited_from)?.min(session.kept);
    session.awaited_from = awaited_from;
    let refusal = match session.kept >= ANSWERS_MAX {
        true => Some(Refusal::TooManyAnswers),
        false => (!room.has_some(stamp.session, &session.owner)).then_some(Refusal::NoRoomForAnswers),
    };
    if let Some(refusal) = refusal {
        storage.put(Table::Sessions, single(stamp.session), session.encode())?;
        return Ok(Before::Refused(refusal));
    }
    storage.delete(Table::Idle, &pair(session.used_millis, stamp.session))?;
    session.used_millis = time_millis.max(RELEASED + 1);
    Ok(Before::New(session))
}

/// Keeps an answer.
pub(super) fn finish(
    storage: &mut impl Storage,
    room: &mut Room,
    stamp: &Stamp,
    mut session: Session,
    applied: &Applied,
) -> Result<(), StorageError> {
    session.kept += 1;
    storage.put(Table::Sessions, single(stamp.session), session.encode())?;
    storage.put(Table::Idle, pair(session.used_millis, stamp.session), Bytes::new())?;
    let answer = encode(applied);
    room.take(stamp.session, &session.owner, &answer);
    storage.put(Table::Answers, pair(stamp.session, stamp.sequence), answer)
}

/// All of them.
pub(super) fn each(storage: &impl Storage, mut each: impl FnMut(u64, Session)) -> Result<(), StorageError> {
    read_all(storage, Table::Sessions, |key, row| {
        each(numbers(key).0, Session::decode(row.clone())?);
        Ok(())
    })
}

/// What one has is nobody's, and over: see [`RELEASED`].
pub(super) fn release(storage: &mut impl Storage, owner: &Bytes) -> Result<(), StorageError> {
    let mut owned = Vec::new();
    each(storage, |number, session| {
        if session.owner == *owner {
            owned.push((number, session));
        }
    })?;
    for (number, session) in owned {
        use_again(storage, number, Session { owner: Bytes::new(), ..session }, RELEASED)?;
    }
    Ok(())
}

/// A session was used at that time last.
fn use_again(
    storage: &mut impl Storage,
    number: u64,
    mut session: Session,
    used_millis: u64,
) -> Result<(), StorageError> {
    storage.delete(Table::Idle, &pair(session.used_millis, number))?;
    session.used_millis = used_millis;
    storage.put(Table::Sessions, single(number), session.encode())?;
    storage.put(Table::Idle, pair(used_millis, number), Bytes::new())
}

/// Ends sessions that nobody has used for long, also not since all were as if used, at most so many, and no more behind one with which as
/// many answers have gone.
pub(super) fn expire(
    storage: &mut impl Storage,
    room: &mut Room,
    owners: &mut Owners,
    time_millis: u64,
    renewed_millis: u64,
    most: usize,
) -> Result<(), StorageError> {
    let mut idle = Vec::new();
    let end_millis = time_millis.saturating_sub(IDLE_MILLIS).max(RELEASED + 1);
    storage.scan(Table::Idle, &[], Some(&single(end_millis)), &mut |key, _| {
        idle.push(numbers(key));
        if idle.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let mut answers = 0;
    for (used_millis, number) in idle {
        if used_millis != RELEASED && renewed_millis >= end_millis {
            let row = storage.get(Table::Sessions, &single(number))?;
            if let Some(session) = row.map(Session::decode).transpose().map_err(damaged)? {
                use_again(storage, number, session, renewed_millis)?;
            }
            continue;
        }
        answers += close(storage, room, owners, number)?.unwrap_or_default() as usize;
        if answers >= most {
            break;
        }
    }
    Ok(())
}

pub(super) fn encode(applied: &Applied) -> Bytes {
    let mut out = Vec::new();
    put_number(&mut out, applied.index);
    put_number(&mut out, applied.term);
    match &applied.outcome {
        Ok(Results { succeeded, results }) => {
            out.extend([0, u8::from(*succeeded)]);
            put_list(&mut out, results, put_result);
        }
        Err(refusal) => out.push(refusal.number()),
    }
    out.into()
}

fn put_result(out: &mut Vec<u8>, result: &OperationResult) {
    match result {
        OperationResult::Put => out.push(1),
        OperationResult::Deleted(was_there) => out.extend([2, u8::from(*was_there)]),
        OperationResult::Got(None) => out.extend([3, 0]),
        OperationResult::Got(Some(KeyValue { key, value, revision, expires_millis, lease })) => {
            out.extend([3, if *lease == 0 { 1 } else { 2 }]);
            if *lease > 0 {
                put_number(out, *lease);
            }
            put_number(out, *revision);
            put_number(out, *expires_millis);
            put_string(out, key);
            put_string(out, value);
        }
        OperationResult::Sum(sum) => {
            out.push(4);
            put_number(out, *sum as u64);
        }
        OperationResult::Attached(was_there) => out.extend([5, u8::from(*was_there)]),
        OperationResult::Lease(None) => out.extend([6, 0]),
        OperationResult::Lease(Some(Lease { number, ttl_millis, expires_millis })) => {
            out.extend([6, 1]);
            [*number, *ttl_millis, *expires_millis].into_iter().for_each(|number| put_number(out, number));
        }
        OperationResult::Revoked(was_there) => out.extend([7, u8::from(*was_there)]),
    }
}

pub(super) fn decode(row: Bytes) -> Result<Applied, Malformed> {
    let mut reader = Reader::new(row, "an answer of a session");
    let (index, term) = (reader.number()?, reader.number()?);
    let outcome = match reader.byte()? {
        0 => Ok(Results { succeeded: reader.flag()?, results: reader.list(result)? }),
        number => Err(Refusal::of(number).map_or_else(|| reader.fail(), Ok)?),
    };
    reader.end()?;
    Ok(Applied { index, term, outcome })
}

fn result(reader: &mut Reader) -> Result<OperationResult, Malformed> {
    Ok(match reader.byte()? {
        1 => OperationResult::Put,
        2 => OperationResult::Deleted(reader.flag()?),
        3 => OperationResult::Got(match reader.byte()? {
            0 => None,
            has @ (1 | 2) => {
                let lease = if has == 2 { reader.number()? } else { 0 };
                if has == 2 && lease == 0 {
                    return reader.fail();
                }
                let (revision, expires_millis) = (reader.number()?, reader.number()?);
                Some(KeyValue { key: reader.string()?, value: reader.string()?, revision, expires_millis, lease })
            }
            _ => return reader.fail(),
        }),
        4 => OperationResult::Sum(reader.number()? as i64),
        5 => OperationResult::Attached(reader.flag()?),
        6 => OperationResult::Lease(match reader.flag()? {
            false => None,
            true => {
                let (number, ttl_millis) = (reader.number()?, reader.number()?);
                Some(Lease { number, ttl_millis, expires_millis: reader.number()? })
            }
        }),
        7 => OperationResult::Revoked(reader.flag()?),
        _ => return reader.fail(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_is_kept_as_it_was_given() {
        let item = KeyValue { key: "k".into(), value: "v".into(), revision: 3, expires_millis: 9, lease: 0 };
        let leased = KeyValue { lease: 7, ..item.clone() };
        let lease = Lease { number: 7, ttl_millis: 20, expires_millis: 30 };
        let results = vec![
            OperationResult::Put,
            OperationResult::Deleted(true),
            OperationResult::Got(None),
            OperationResult::Got(Some(item)),
            OperationResult::Got(Some(leased)),
            OperationResult::Sum(-4),
            OperationResult::Attached(true),
            OperationResult::Lease(None),
            OperationResult::Lease(Some(lease)),
            OperationResult::Revoked(false),
        ];
        let outcomes = Refusal::ALL.iter().copied().map(Err).chain([Ok(Results { succeeded: true, results })]);
        for outcome in outcomes {
            let applied = Applied { index: 5, term: 2, outcome };
            assert_eq!(decode(encode(&applied)), Ok(applied));
        }
    }

    #[test]
    fn answers_of_many_sessions_are_bounded_together() {
        let mut room = Room::default();
        let (answer, nobody) = (Bytes::from(vec![0; 4 << 20]), Bytes::new());
        for session in 0..64 {
            assert!(room.has_some(session, &nobody));
            room.take(session, &nobody, &answer);
        }
        assert!(!room.has_some(0, &nobody) && !room.has_some(99, &nobody));
        room.give(7, &nobody, answer.len() as u64 + ANSWER_BYTES);
        assert!(room.has_some(99, &nobody) && !room.sessions.contains_key(&7));
    }

    /// Sixty-five small writes, and everybody was refused for an hour, administrators too.
    #[test]
    fn a_user_whose_sessions_keep_much_does_not_fill_the_room_of_others() {
        let mut room = Room::default();
        let (answer, anna, bob) = (Bytes::from(vec![0; 4 << 20]), Bytes::from("anna"), Bytes::from("bob"));
        let mut sessions = 0;
        while room.has_some(sessions, &anna) {
            room.take(sessions, &anna, &answer);
            sessions += 1;
        }
        assert_eq!(sessions, 8);
        assert!(room.has_some(99, &bob) && room.has_some(99, &Bytes::new()));
        room.give(0, &anna, answer.len() as u64 + ANSWER_BYTES);
        assert!(room.has_some(99, &anna));
        // Who is given her name has nothing of hers.
        room.take(0, &anna, &answer);
        room.release(&anna);
        assert!(room.has_some(99, &anna) && room.all > USER_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn any_row_is_an_answer_or_damaged(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(applied) = decode(bytes.clone().into()) {
                prop_assert_eq!(encode(&applied), bytes);
            }
        }
    }
}
