//! Clients that ask and take no replies.

use d_engine_client::grpc::Channel;
use d_engine_client::wire::request::Body;
use d_engine_client::wire::{Read, Replies, Request, Requests, Write};
use d_engine_client::{Operation, Query, ReadLevel, Transaction};

use crate::group::{Group, PATIENCE};

/// Its replies would hold room that others need for as long as it likes.
#[tokio::test]
async fn a_client_that_takes_no_replies_is_let_go() {
    // It may wait ten times as long as an answer may take, and here no disk takes part.
    let group = Group::start_with(1, &["--request-timeout-ms", "300", "--durability", "none"]);
    group.leader().await;
    group.client().await.put("k", vec![b'v'; 1 << 20]).await.unwrap();
    let channel = Channel::connect(&group.addresses[0]).await.unwrap();
    let get = Write::of(Transaction::of(Operation::Get { key: "k".into() }), None);
    let frame = Requests { requests: vec![Request { id: 1, body: Some(Body::Write(get)) }; 20] };
    let path = "/storebench.dengine.v1.Store/Operate";
    let (mut questions, _answers) = channel.stream::<_, Replies>(path, &frame, false).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, async { while questions.send(&frame).await.is_ok() {} }).await;
    assert!(ended.is_ok(), "it is served for ever");
}

/// Each stream made an answer of up to 16 MiB, which waited for its client for as long as it was let.
#[tokio::test]
async fn answers_are_not_made_for_a_client_that_takes_none() {
    const KEYS: usize = 15;
    const STREAMS: usize = 30;
    let group = Group::start_with(1, &["--durability", "none"]);
    group.leader().await;
    let client = group.client().await;
    for number in 0..KEYS {
        client.put(format!("k{number}"), vec![b'v'; 1 << 20]).await.unwrap();
    }
    let before = group.memory(1).resident_bytes;
    let channel = Channel::connect(&group.addresses[0]).await.unwrap();
    let keys = (0..KEYS).map(|number| format!("k{number}").into()).collect();
    let read = Read::of(Query::GetMany(keys), ReadLevel::Eventual.into());
    let frame = Requests { requests: vec![Request { id: 1, body: Some(Body::Read(read)) }] };
    let path = "/storebench.dengine.v1.Store/Operate";
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(channel.stream::<_, Replies>(path, &frame, false).await.unwrap());
    }
    // They answer, or would.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let grown = group.memory(1).resident_bytes.saturating_sub(before) >> 20;
    assert!(grown < (STREAMS * KEYS / 4) as u64, "{grown} MiB");
    // Who takes them gets them.
    let taken = streams.into_iter().map(async |(_questions, mut answers)| {
        let replies = tokio::time::timeout(PATIENCE, answers.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(replies.replies.len(), 1);
    });
    futures::future::join_all(taken).await;
}
