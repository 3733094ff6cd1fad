//! Between what is said and its messages on the wire, both ways. What a peer left out or made up is an error that names it.

use crate::wire;
use crate::{
    Answer, Applied, Compare, Condition, Error, Event, EventKind, KeyValue, Leader, Lease, Operation, OperationResult,
    Query, ReadLevel, ReadOptions, ReadPath, Scan, Seen, Stamp, Transaction, WatchOptions, Written,
};

const NOTHING: wire::Nothing = wire::Nothing {};

fn missing(what: &str) -> Error {
    Error::Invalid(format!("{what} is missing, or of a later version of the protocol"))
}

impl wire::Write {
    /// To be sent.
    pub fn of(transaction: Transaction, stamp: Option<Stamp>) -> Self {
        let Transaction { compares, then, otherwise } = transaction;
        let stamp =
            stamp.map(|Stamp { session, sequence, awaited_from }| wire::Stamp { session, sequence, awaited_from });
        Self {
            compares: compares.into_iter().map(wire::Compare::of).collect(),
            then: then.into_iter().map(wire::Operation::of).collect(),
            otherwise: otherwise.into_iter().map(wire::Operation::of).collect(),
            stamp,
        }
    }

    /// As it was received.
    pub fn parse(self) -> Result<(Transaction, Option<Stamp>), Error> {
        let compares = self.compares.into_iter().map(wire::Compare::parse).collect::<Result<_, _>>()?;
        let operations =
            |list: Vec<wire::Operation>| list.into_iter().map(wire::Operation::parse).collect::<Result<Vec<_>, _>>();
        let transaction =
            Transaction { compares, then: operations(self.then)?, otherwise: operations(self.otherwise)? };
        let stamp = self.stamp;
        let stamp =
            stamp.map(|wire::Stamp { session, sequence, awaited_from }| Stamp { session, sequence, awaited_from });
        Ok((transaction, stamp))
    }
}

impl wire::Compare {
    fn of(compare: Compare) -> Self {
        use wire::compare::Condition as Wire;
        let condition = match compare.condition {
            Condition::ValueIs(value) => Wire::ValueIs(value),
            Condition::Exists(exists) => Wire::Exists(exists),
            Condition::RevisionIs(revision) => Wire::RevisionIs(revision),
            Condition::RevisionBelow(revision) => Wire::RevisionBelow(revision),
            Condition::RevisionAbove(revision) => Wire::RevisionAbove(revision),
        };
        Self { key: compare.key, condition: Some(condition) }
    }

    fn parse(self) -> Result<Compare, Error> {
        use wire::compare::Condition as Wire;
        let condition = match self.condition.ok_or_else(|| missing("the condition of a compare"))? {
            Wire::ValueIs(value) => Condition::ValueIs(value),
            Wire::Exists(exists) => Condition::Exists(exists),
            Wire::RevisionIs(revision) => Condition::RevisionIs(revision),
            Wire::RevisionBelow(revision) => Condition::RevisionBelow(revision),
            Wire::RevisionAbove(revision) => Condition::RevisionAbove(revision),
        };
        Ok(Compare { key: self.key, condition })
    }
}

impl wire::Operation {
    fn of(operation: Operation) -> Self {
        use wire::operation::Body;
        let body = match operation {
            Operation::Put { key, value, ttl_millis } => Body::Put(wire::Put { key, value, ttl_millis }),
            Operation::Delete { key } => Body::Delete(key),
            Operation::Get { key } => Body::Get(key),
            Operation::Add { key, delta } => Body::Add(wire::Add { key, delta }),
            Operation::Attach { key, lease } => Body::Attach(wire::Attach { key, lease }),
            Operation::Grant { ttl_millis } => Body::GrantMillis(ttl_millis),
            Operation::KeepAlive { lease } => Body::KeepAlive(lease),
            Operation::Revoke { lease } => Body::Revoke(lease),
        };
        Self { body: Some(body) }
    }

    fn parse(self) -> Result<Operation, Error> {
        use wire::operation::Body;
        Ok(match self.body.ok_or_else(|| missing("an operation"))? {
            Body::Put(wire::Put { key, value, ttl_millis }) => Operation::Put { key, value, ttl_millis },
            Body::Delete(key) => Operation::Delete { key },
            Body::Get(key) => Operation::Get { key },
            Body::Add(wire::Add { key, delta }) => Operation::Add { key, delta },
            Body::Attach(wire::Attach { key, lease }) => Operation::Attach { key, lease },
            Body::GrantMillis(ttl_millis) => Operation::Grant { ttl_millis },
            Body::KeepAlive(lease) => Operation::KeepAlive { lease },
            Body::Revoke(lease) => Operation::Revoke { lease },
        })
    }
}

impl wire::KeyValue {
    fn of(KeyValue { key, value, revision, expires_millis, lease }: KeyValue) -> Self {
        Self { key, value, revision, expires_millis, lease }
    }

    fn parse(self) -> KeyValue {
        let Self { key, value, revision, expires_millis, lease } = self;
        KeyValue { key, value, revision, expires_millis, lease }
    }
}

impl wire::Lease {
    fn of(Lease { number, ttl_millis, expires_millis }: Lease) -> Self {
        Self { number, ttl_millis, expires_millis }
    }

    fn parse(self) -> Lease {
        let Self { number, ttl_millis, expires_millis } = self;
        Lease { number, ttl_millis, expires_millis }
    }
}

impl wire::OperationResult {
    fn of(result: OperationResult) -> Self {
        use wire::operation_result::Body;
        let body = match result {
            OperationResult::Put => Body::Put(NOTHING),
            OperationResult::Deleted(was_there) => Body::Deleted(was_there),
            OperationResult::Got(item) => Body::Got(wire::Got { item: item.map(wire::KeyValue::of) }),
            OperationResult::Sum(sum) => Body::Sum(sum),
            OperationResult::Attached(was_there) => Body::Attached(was_there),
            OperationResult::Lease(lease) => Body::Lease(wire::GotLease { lease: lease.map(wire::Lease::of) }),
            OperationResult::Revoked(was_there) => Body::Revoked(was_there),
        };
        Self { body: Some(body) }
    }

    fn parse(self) -> Result<OperationResult, Error> {
        use wire::operation_result::Body;
        Ok(match self.body.ok_or_else(|| missing("the result of an operation"))? {
            Body::Put(wire::Nothing {}) => OperationResult::Put,
            Body::Deleted(was_there) => OperationResult::Deleted(was_there),
            Body::Got(got) => OperationResult::Got(got.item.map(wire::KeyValue::parse)),
            Body::Sum(sum) => OperationResult::Sum(sum),
            Body::Attached(was_there) => OperationResult::Attached(was_there),
            Body::Lease(wire::GotLease { lease }) => OperationResult::Lease(lease.map(wire::Lease::parse)),
            Body::Revoked(was_there) => OperationResult::Revoked(was_there),
        })
    }
}

impl wire::Read {
    /// To be sent.
    pub fn of(query: Query, options: ReadOptions) -> Self {
        use wire::read::{Level, What};
        let level = match options.level {
            ReadLevel::Linearizable => Level::Linearizable(NOTHING),
            ReadLevel::Lease => Level::Lease(NOTHING),
            ReadLevel::Bounded { max_staleness_micros } => Level::BoundedMicros(max_staleness_micros),
            ReadLevel::Eventual => Level::Eventual(NOTHING),
        };
        let what = match query {
            Query::Get(key) => What::Get(key),
            Query::GetMany(keys) => What::GetMany(wire::Keys { keys }),
            Query::Scan(Scan { start, end, limit, after, keys_only }) => {
                What::Scan(wire::Scan { start, end, limit, after, keys_only })
            }
        };
        Self { level: Some(level), at_least: options.at_least, what: Some(what) }
    }

    /// As it was received.
    pub fn parse(self) -> Result<(Query, ReadOptions), Error> {
        use wire::read::{Level, What};
        let level = match self.level.ok_or_else(|| missing("the level of a read"))? {
            Level::Linearizable(_) => ReadLevel::Linearizable,
            Level::Lease(_) => ReadLevel::Lease,
            Level::BoundedMicros(max_staleness_micros) => ReadLevel::Bounded { max_staleness_micros },
            Level::Eventual(_) => ReadLevel::Eventual,
        };
        let query = match self.what.ok_or_else(|| missing("what is read"))? {
            What::Get(key) => Query::Get(key),
            What::GetMany(wire::Keys { keys }) => Query::GetMany(keys),
            What::Scan(wire::Scan { start, end, limit, after, keys_only }) => {
                Query::Scan(Scan { start, end, limit, after, keys_only })
            }
        };
        Ok((query, ReadOptions { level, at_least: self.at_least }))
    }
}

impl wire::Reply {
    /// Of a write.
    pub fn of_write(id: u64, outcome: Result<Written, Error>) -> Self {
        match outcome {
            Err(error) => Self::of_error(id, error),
            Ok(Written { revision, term, applied: Applied { succeeded, results } }) => {
                let results = results.into_iter().map(wire::OperationResult::of).collect();
                let body = wire::reply::Body::Written(wire::Written { succeeded, results });
                Self { id, index: revision, term, body: Some(body), leader_address: String::new() }
            }
        }
    }

    /// Of a write that was handed to the leader, whom clients find at this address; empty: it was not.
    #[must_use]
    pub fn forwarded_to(self, leader_address: String) -> Self {
        Self { leader_address, ..self }
    }

    /// Of a read.
    pub fn of_read(id: u64, outcome: Result<Seen<Answer>, Error>) -> Self {
        match outcome {
            Err(error) => Self::of_error(id, error),
            Ok(Seen { value, index, term, path, age_micros }) => {
                let path = match path {
                    ReadPath::Local => wire::Path::Local,
                    ReadPath::ReadIndex => wire::Path::ReadIndex,
                    ReadPath::Lease => wire::Path::Lease,
                    ReadPath::Age => wire::Path::Age,
                };
                let items = value.items.into_iter().map(wire::KeyValue::of).collect();
                let found = wire::Found { items, more: value.has_more, path: path.into(), age_micros };
                let body = Some(wire::reply::Body::Found(found));
                Self { id, index, term, body, leader_address: String::new() }
            }
        }
    }

    /// Of a session that was closed, or opened: `None`.
    pub fn of_session(id: u64, closed: Option<u64>, outcome: Result<Written, Error>) -> Self {
        match outcome {
            Err(error) => Self::of_error(id, error),
            Ok(Written { revision, term, .. }) => {
                let body = Some(wire::reply::Body::Session(closed.unwrap_or(revision)));
                Self { id, index: revision, term, body, leader_address: String::new() }
            }
        }
    }

    /// Of anything that failed.
    pub fn of_error(id: u64, error: Error) -> Self {
        let body = Some(wire::reply::Body::Error(wire::Error::of(error)));
        Self { id, index: 0, term: 0, body, leader_address: String::new() }
    }

    /// What a write came to.
    pub fn into_written(self) -> Result<Written, Error> {
        match self.body {
            Some(wire::reply::Body::Written(wire::Written { succeeded, results })) => {
                let results = results.into_iter().map(wire::OperationResult::parse).collect::<Result<_, _>>();
                let results = results.map_err(|error| Error::UnknownOutcome(error.to_string()))?;
                Ok(Written { revision: self.index, term: self.term, applied: Applied { succeeded, results } })
            }
            Some(wire::reply::Body::Error(error)) => Err(error.parse()),
            _ => Err(Error::UnknownOutcome("the reply is not that of a write".into())),
        }
    }

    /// What a read saw.
    pub fn into_seen(self) -> Result<Seen<Answer>, Error> {
        match self.body {
            Some(wire::reply::Body::Found(found)) => {
                let path = match found.path() {
                    wire::Path::Local => ReadPath::Local,
                    wire::Path::ReadIndex => ReadPath::ReadIndex,
                    wire::Path::Lease => ReadPath::Lease,
                    wire::Path::Age => ReadPath::Age,
                };
                let wire::Found { items, more, age_micros, .. } = found;
                let value = Answer { items: items.into_iter().map(wire::KeyValue::parse).collect(), has_more: more };
                Ok(Seen { value, index: self.index, term: self.term, path, age_micros })
            }
            Some(wire::reply::Body::Error(error)) => Err(error.parse()),
            _ => Err(Error::Invalid("the reply is not that of a read".into())),
        }
    }

    /// The number of a session.
    pub fn into_session(self) -> Result<u64, Error> {
        match self.body {
            Some(wire::reply::Body::Session(session)) => Ok(session),
            Some(wire::reply::Body::Error(error)) => Err(error.parse()),
            _ => Err(Error::UnknownOutcome("the reply is not that of a session".into())),
        }
    }
}

impl wire::Error {
    /// To be sent.
    pub fn of(error: Error) -> Self {
        use wire::Code;
        let message = error.to_string();
        let (code, leader, number) = match error {
            Error::NotLeader(leader) => (Code::NotLeader, leader.unwrap_or_default(), 0),
            Error::Busy | Error::NotNow(_) => (Code::Busy, Leader::default(), 0),
            Error::Invalid(_) => (Code::Invalid, Leader::default(), 0),
            Error::NoSession(_) => (Code::NoSession, Leader::default(), 0),
            Error::Forgotten(_) => (Code::Forgotten, Leader::default(), 0),
            Error::UnknownOutcome(_) => (Code::UnknownOutcome, Leader::default(), 0),
            Error::Denied(_) => (Code::Denied, Leader::default(), 0),
            Error::NoQuorum => (Code::NoQuorum, Leader::default(), 0),
            Error::TooOld(revision) => (Code::TooOld, Leader::default(), revision),
            Error::Unreachable(_) | Error::Failed(_) | Error::Stopped => (Code::Stopped, Leader::default(), 0),
        };
        Self {
            code: code.into(),
            message,
            leader_id: leader.id,
            leader_address: leader.address,
            oldest_revision: number,
        }
    }

    /// As it was received.
    pub fn parse(self) -> Error {
        use wire::Code;
        // What it says already would be said again each time that it is passed on.
        let without = |front: &str| self.message.strip_prefix(front).unwrap_or(&self.message).to_owned();
        match self.code() {
            Code::NotLeader => {
                let leader = Leader { id: self.leader_id, address: self.leader_address };
                Error::NotLeader((leader.id != 0).then_some(leader))
            }
            Code::Busy if self.message == Error::Busy.to_string() => Error::Busy,
            Code::Busy => Error::NotNow(self.message),
            Code::Invalid => Error::Invalid(self.message),
            Code::NoQuorum => Error::NoQuorum,
            Code::NoSession => Error::NoSession(without("the session has ended: ")),
            Code::Forgotten => Error::Forgotten(self.message),
            Code::TooOld => Error::TooOld(self.oldest_revision),
            Code::Stopped if self.message == Error::Stopped.to_string() => Error::Stopped,
            Code::Stopped => Error::Failed(self.message),
            Code::Denied => Error::Denied(self.message),
            // Of a later version: who knows.
            Code::Unspecified | Code::UnknownOutcome => Error::UnknownOutcome(without("the outcome is not known: ")),
        }
    }
}

impl wire::WatchRequest {
    /// To be sent.
    pub fn of(options: WatchOptions) -> Self {
        let WatchOptions { start, end, from_revision, with_previous } = options;
        Self { start, end, from_revision, with_previous }
    }

    /// As it was received.
    pub fn parse(self) -> WatchOptions {
        let Self { start, end, from_revision, with_previous } = self;
        WatchOptions { start, end, from_revision, with_previous }
    }
}

impl wire::Event {
    /// To be sent.
    pub fn of(Event { kind, key, value, revision, previous }: Event) -> Self {
        let kind = match kind {
            EventKind::Put => wire::event::Kind::Put,
            EventKind::Delete => wire::event::Kind::Delete,
            EventKind::Expire => wire::event::Kind::Expire,
        };
        Self { kind: kind.into(), key, value, revision, previous }
    }

    /// As it was received.
    pub fn parse(self) -> Event {
        let kind = match self.kind() {
            wire::event::Kind::Put => EventKind::Put,
            wire::event::Kind::Delete => EventKind::Delete,
            wire::event::Kind::Expire => EventKind::Expire,
        };
        let Self { key, value, revision, previous, .. } = self;
        Event { kind, key, value, revision, previous }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use prost::Message;

    fn bytes() -> impl Strategy<Value = Bytes> {
        vec(any::<u8>(), 0..6).prop_map(Bytes::from)
    }

    fn compare() -> impl Strategy<Value = Compare> {
        let condition = prop_oneof![
            bytes().prop_map(Condition::ValueIs),
            any::<bool>().prop_map(Condition::Exists),
            any::<u64>().prop_map(Condition::RevisionIs),
            any::<u64>().prop_map(Condition::RevisionBelow),
            any::<u64>().prop_map(Condition::RevisionAbove),
        ];
        (bytes(), condition).prop_map(|(key, condition)| Compare { key, condition })
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            (bytes(), bytes(), any::<u64>()).prop_map(|(key, value, ttl_millis)| Operation::Put {
                key,
                value,
                ttl_millis
            }),
            bytes().prop_map(|key| Operation::Delete { key }),
            bytes().prop_map(|key| Operation::Get { key }),
            (bytes(), any::<i64>()).prop_map(|(key, delta)| Operation::Add { key, delta }),
            (bytes(), any::<u64>()).prop_map(|(key, lease)| Operation::Attach { key, lease }),
            any::<u64>().prop_map(|ttl_millis| Operation::Grant { ttl_millis }),
            any::<u64>().prop_map(|lease| Operation::KeepAlive { lease }),
            any::<u64>().prop_map(|lease| Operation::Revoke { lease }),
        ]
    }

    proptest! {
        #[test]
        fn a_write_is_received_as_it_was_sent(
            compares in vec(compare(), 0..3), then in vec(operation(), 0..3), otherwise in vec(operation(), 0..3),
            stamp in option::of(any::<(u64, u64, u64)>()),
        ) {
            let transaction = Transaction { compares, then, otherwise };
            let stamp = stamp.map(|(session, sequence, awaited_from)| Stamp { session, sequence, awaited_from });
            let sent = wire::Write::of(transaction.clone(), stamp).encode_to_vec();
            let received = wire::Write::decode(sent.as_slice()).unwrap().parse();
            prop_assert_eq!(received, Ok((transaction, stamp)));
        }

        #[test]
        fn any_request_is_parsed_or_refused(bytes in vec(any::<u8>(), 0..64)) {
            for request in wire::Requests::decode(bytes.as_slice()).map(|frame| frame.requests).unwrap_or_default() {
                match request.body {
                    Some(wire::request::Body::Write(write)) => drop(write.parse()),
                    Some(wire::request::Body::Read(read)) => drop(read.parse()),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn every_error_is_received_as_it_was_sent() {
        let leader = Leader { id: 3, address: "127.0.0.1:9083".into() };
        let errors = [
            Error::NotLeader(Some(leader)),
            Error::NotLeader(None),
            Error::Busy,
            Error::Invalid("a".into()),
            Error::NoQuorum,
            Error::TooOld(7),
            Error::Denied("no".into()),
            Error::Forgotten("a".into()),
            Error::Stopped,
            Error::NotNow("the session keeps too many answers".into()),
            Error::Failed("the state's storage: its disk has no room".into()),
            Error::NoSession("a".into()),
            Error::UnknownOutcome("a".into()),
        ];
        for error in errors {
            assert_eq!(wire::Error::of(error.clone()).parse(), error);
        }
    }

    #[test]
    fn a_put_on_the_streaming_door_has_these_bytes() {
        let write = wire::Write::of(Transaction::put("k", "v"), None);
        let request = wire::Request { id: 1, body: Some(wire::request::Body::Write(write)) };
        let frame = wire::Requests { requests: vec![request] }.encode_to_vec();
        assert_eq!(frame, b"\x0a\x0e\x08\x01\x12\x0a\x12\x08\x0a\x06\x0a\x01k\x12\x01v");
    }
}
