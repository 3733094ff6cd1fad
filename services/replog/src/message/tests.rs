use proptest::prelude::*;

use super::*;
use crate::entry::{Entry, EntryKind};
use crate::membership::Membership;
use crate::snapshot::SnapshotMeta;

fn any_entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![Just(EntryKind::Empty), Just(EntryKind::Command), Just(EntryKind::Membership)];
    (any::<u64>(), any::<u64>(), kind, any::<u64>(), proptest::collection::vec(any::<u8>(), 0..50)).prop_map(
        |(index, term, kind, time, data)| {
            let time_millis = if kind == EntryKind::Command { time } else { 0 };
            Entry { index, term, kind, time_millis, data: data.into() }
        },
    )
}

fn any_wire() -> impl Strategy<Value = Message> {
    let numbers = proptest::collection::vec(any::<u64>(), 17);
    let entries = proptest::collection::vec(any_entry(), 0..4);
    (0..19u8, numbers, any::<bool>(), entries, any::<bool>()).prop_map(|(kind, n, reject, entries, has_snapshot)| {
        let mut wire = Wire {
            from: n[0],
            to: n[1],
            term: n[2],
            log_term: n[3],
            index: n[4],
            commit: n[5],
            commit_term: n[6],
            request_snapshot: n[7],
            reject,
            reject_hint: n[8],
            context: n[9].to_le_bytes().to_vec().into(),
            priority: n[10] as i64,
            ..Wire::default()
        };
        wire.set_msg_type(consensus::wire_kind(kind).unwrap());
        wire.set_entries(entries.into_iter().map(consensus::to_raft).collect::<Vec<_>>().into());
        if has_snapshot {
            let meta = SnapshotMeta {
                index: n[11],
                term: n[12],
                membership: Membership::of([1, n[13]]),
                bytes: n[14] >> 40,
                chunk_bytes: 1 + (n[15] as u32 >> 2),
                ..SnapshotMeta::default()
            };
            wire.set_snapshot(consensus::offer(&meta));
        }
        let mark = Mark { incarnation: n[16], micros: n[15] };
        let stamp = Stamp { sent: n[11], heard: n[12], mark, echo: mark, commit_or_promise: n[13] };
        Message { from: n[0], to: n[1], body: Body::Consensus(Box::new(wire), stamp) }
    })
}

fn any_snapshot_message() -> impl Strategy<Value = Message> {
    let data = proptest::collection::vec(any::<u8>(), 0..50);
    (any::<u64>(), any::<u32>(), data, 0..3).prop_map(|(number, small, data, kind)| {
        let id = SnapshotId { index: number, term: !number, checksum: small };
        let body = match kind {
            0 => SnapshotMessage::Fetch { id, chunks: data.iter().map(|byte| u32::from(*byte)).collect() },
            1 => SnapshotMessage::Chunk { id, chunk: small, checksum: !small, data: data.into() },
            _ => SnapshotMessage::Gone { id },
        };
        Message { from: 1, to: number, body: Body::Snapshot(body) }
    })
}

fn any_note() -> impl Strategy<Value = Message> {
    (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..50)).prop_map(|(to, note)| Message {
        from: 1,
        to,
        body: Body::Note(note.into()),
    })
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded(message in prop_oneof![any_wire(), any_snapshot_message(), any_note()]) {
        let bytes = message.encode();
        let decoded = Message::decode(&bytes).unwrap();
        prop_assert_eq!(format!("{:?}", decoded.body), format!("{:?}", message.body));
        prop_assert_eq!(decoded.encode(), bytes);
    }

    #[test]
    fn whatever_comes_is_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Message::decode(&bytes);
    }

    #[test]
    fn what_was_changed_is_decoded_or_refused(message in any_wire(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut bytes = message.encode().to_vec();
        let position = at.index(bytes.len());
        bytes[position] = byte;
        let _ = Message::decode(&bytes);
        prop_assert!(Message::decode(&message.encode()[..cut.index(bytes.len())]).is_err());
    }
}
