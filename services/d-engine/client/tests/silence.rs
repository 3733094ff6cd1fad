//! Members that take requests and do not answer, or hang altogether: clients go on at others, and send nothing twice that would be done twice.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use d_engine_client::wire::{self, request::Body};
use d_engine_client::{
    Answer, Applied, Client, Error, Lease, OperationResult, Options, ReadLevel, ReadPath, Seen, Transaction,
    WatchOptions, Written,
};
use h2::server::SendResponse;
use http::{Request, Response};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a member is just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Answers,
    /// It takes requests and answers pings, and nothing else.
    SaysNothing,
    /// It does nothing at all from the moment on that it is sent something; its kernel takes connections.
    Hangs,
}

/// A member that is made up, and what it was sent.
#[derive(Clone)]
struct Member {
    address: String,
    manner: watch::Sender<Manner>,
    /// Closes all connections.
    cut: watch::Sender<()>,
    writes: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Member {
    async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (manner, cut) = (watch::Sender::new(manner), watch::Sender::new(()));
        let (writes, reads, connections) = Default::default();
        let member = Self { address, manner, cut, writes, reads, connections };
        let of_all = member.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                of_all.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(of_all.clone().serve(socket));
            }
        });
        member
    }

    fn is(&self, manner: Manner) -> bool {
        *self.manner.borrow() == manner
    }

    async fn serve(self, socket: TcpStream) {
        let (mut changed, mut cut) = (self.manner.subscribe(), self.cut.subscribe());
        let Ok(mut connection) = h2::server::handshake(socket).await else { return };
        loop {
            tokio::select! {
                accepted = connection.accept() => {
                    let Some(Ok((request, respond))) = accepted else { return };
                    let member = self.clone();
                    tokio::spawn(async move { member.answer(request, respond).await });
                }
                _ = cut.changed() => return,
                () = async { drop(changed.wait_for(|manner| *manner == Manner::Hangs).await) } => {
                    // Not looked at any more; the socket stays.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    async fn answer(self, request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>) {
        let is_watch = request.uri().path().ends_with("/Watch");
        let mut out = respond.send_response(Response::new(()), false).unwrap();
        if is_watch {
            out.send_data(frame(&wire::Events::default()), false).unwrap();
        }
        let (mut body, mut received) = (request.into_body(), BytesMut::new());
        while let Some(Ok(chunk)) = body.data().await {
            body.flow_control().release_capacity(chunk.len()).unwrap();
            received.extend_from_slice(&chunk);
            while received.len() >= 5
                && received.len() - 5 >= u32::from_be_bytes(received[1..5].try_into().unwrap()) as usize
            {
                let length = received.split_to(5).split_off(1).get_u32() as usize;
                let message = received.split_to(length);
                if is_watch {
                    continue;
                }
                let requests = wire::Requests::decode(message).unwrap().requests;
                for request in &requests {
                    match request.body {
                        Some(Body::Write(_)) => self.writes.fetch_add(1, Ordering::Relaxed),
                        _ => self.reads.fetch_add(1, Ordering::Relaxed),
                    };
                }
                let replies = requests.into_iter().map(reply).collect();
                if self.is(Manner::Answers) {
                    out.send_data(frame(&wire::Replies { replies }), false).unwrap();
                }
            }
        }
        // Whoever watches is not told that it is over.
        std::future::pending::<()>().await;
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

fn frame(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.encoded_len() as u32);
    message.encode(&mut frame).unwrap();
    frame.freeze()
}

fn reply(request: wire::Request) -> wire::Reply {
    match request.body.unwrap() {
        Body::Write(_) => {
            let lease = Lease { number: 7, ttl_millis: 60_000, expires_millis: 60_000 };
            let results = vec![OperationResult::Lease(Some(lease))];
            let applied = Applied { succeeded: true, results };
            wire::Reply::of_write(request.id, Ok(Written { revision: 1, term: 1, applied }))
        }
        Body::Read(_) => {
            let value = Answer { items: Vec::new(), has_more: false };
            let seen = Seen { value, index: 1, term: 1, path: ReadPath::Local, age_micros: None };
            wire::Reply::of_read(request.id, Ok(seen))
        }
        Body::OpenSession(_) | Body::CloseSession(_) => {
            let applied = Applied { succeeded: true, results: Vec::new() };
            wire::Reply::of_session(request.id, None, Ok(Written { revision: 5, term: 1, applied }))
        }
    }
}

/// A client that has asked the first member, and believes that it leads.
async fn client(members: &[&Member], request_timeout: Duration) -> Client {
    let addresses: Vec<String> = members.iter().map(|member| member.address.clone()).collect();
    Client::connect(&addresses, Options { request_timeout, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn what_may_be_repeated_goes_on_at_another_member_when_one_takes_it_and_says_nothing() {
    let (silent, other) = (Member::start(Manner::SaysNothing).await, Member::start(Manner::Answers).await);
    // Once for each: the client begins with the first address.
    let members = [&silent, &other];
    let new = || client(&members, Duration::from_secs(3));
    for level in [ReadLevel::Linearizable, ReadLevel::Eventual] {
        new().await.get_with("k", level).await.unwrap_or_else(|error| panic!("{level:?}: {error}"));
    }
    let session = new().await.session().await.unwrap();
    session.transact(Transaction::put("k", "v"), Duration::from_secs(3)).await.unwrap();
    assert!(new().await.keep_alive(7).await.unwrap().is_some());
    assert!(silent.writes() > 0, "the keep-alive was sent to it first");
}

#[tokio::test]
async fn a_write_that_may_have_happened_is_sent_once_also_where_the_member_hangs() {
    for manner in [Manner::SaysNothing, Manner::Hangs] {
        let (silent, other) = (Member::start(Manner::Answers).await, Member::start(Manner::Answers).await);
        // A member that hangs is left before the time is up, one that answers pings is not.
        let patience = if manner == Manner::Hangs { PATIENCE } else { Duration::from_secs(1) };
        let client = client(&[&silent, &other], patience).await;
        silent.manner.send_replace(Manner::SaysNothing);
        let (task, before) = (client.clone(), silent.writes());
        let put = tokio::spawn(async move { task.put("k", "v").await });
        while silent.writes() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        silent.manner.send_replace(manner);
        let outcome = timeout(PATIENCE / 2, put).await.expect("it waits for ever").unwrap();
        assert!(matches!(outcome, Err(Error::UnknownOutcome(_))), "{manner:?}: {outcome:?}");
        assert_eq!(silent.writes() + other.writes(), 1, "{manner:?}");
        if manner == Manner::Hangs {
            // From there on others are asked.
            client.put("k", "v").await.unwrap();
            assert_eq!(other.writes(), 1);
        }
    }
}

#[tokio::test]
async fn a_read_of_a_member_that_says_nothing_is_not_a_write_of_unknown_outcome() {
    let silent = Member::start(Manner::SaysNothing).await;
    let client = client(&[&silent], Duration::from_millis(600)).await;
    assert_eq!(client.get("k").await, Err(Error::NoQuorum), "it answers pings");
    let eventual = client.get_with("k", ReadLevel::Eventual).await;
    assert!(matches!(eventual, Err(Error::Unreachable(_))), "{eventual:?}");
}

#[tokio::test]
async fn a_watch_on_a_member_that_hangs_ends() {
    let member = Member::start(Manner::Answers).await;
    let mut watch = client(&[&member], PATIENCE).await.watch(WatchOptions::key("k")).await.unwrap();
    member.manner.send_replace(Manner::Hangs);
    let told = timeout(PATIENCE, watch.next()).await.expect("it is silent for ever");
    assert!(matches!(&told, Some(Err(Error::Unreachable(why))) if why.contains("silent for 2 s")), "{told:?}");
}

#[tokio::test]
async fn when_a_link_is_lost_all_who_want_it_open_one() {
    let member = Member::start(Manner::Answers).await;
    let client = client(&[&member], PATIENCE).await;
    // Each of them waits for an answer when the link is lost, and wants another one.
    member.manner.send_replace(Manner::SaysNothing);
    let gets: Vec<_> = (0..1000)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get("k").await })
        })
        .collect();
    while member.reads.load(Ordering::Relaxed) < gets.len() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    member.cut.send_replace(());
    member.manner.send_replace(Manner::Answers);
    for get in gets {
        get.await.unwrap().unwrap();
    }
    assert_eq!(member.connections.load(Ordering::Relaxed), 2);
}
