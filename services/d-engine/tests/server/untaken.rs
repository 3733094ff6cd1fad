//! Clients that ask and take no replies.

use d_engine_client::grpc::Channel;
use d_engine_client::wire::request::Body;
use d_engine_client::wire::{Replies, Request, Requests, Write};
use d_engine_client::{Operation, Transaction};

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
