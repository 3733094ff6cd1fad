//! What replies and metrics say is true: which entry, which term, what became of it.

use d_engine_client::grpc::{Answers, Channel, Questions};
use d_engine_client::proto::d_engine::client as second;
use d_engine_client::wire::{self, reply, request};
use d_engine_client::{Operation, Stamp, Transaction};

use crate::command_line::get;
use crate::group::Group;

/// A stream of the streaming door.
struct Stream {
    questions: Questions<wire::Requests>,
    answers: Answers<wire::Replies>,
    last: u64,
}

impl Stream {
    /// One that opens a session; its number.
    async fn open(address: &str) -> (Self, u64) {
        let channel = Channel::connect(address).await.unwrap();
        let body = Some(request::Body::OpenSession(wire::OpenSession {}));
        let first = wire::Requests { requests: vec![wire::Request { id: 1, body }] };
        let path = "/storebench.dengine.v1.Store/Operate";
        let (questions, answers) = channel.stream(path, &first, false).await.unwrap();
        let mut stream = Self { questions, answers, last: 1 };
        let opened = stream.reply().await;
        assert!(opened.term > 0, "a reply states the term");
        let Some(reply::Body::Session(session)) = opened.body else { panic!("{opened:?}") };
        assert_eq!(opened.index, session, "it is numbered by the entry that opened it");
        (stream, session)
    }

    async fn reply(&mut self) -> wire::Reply {
        let mut replies = self.answers.next().await.unwrap().unwrap().replies;
        assert_eq!(replies.len(), 1);
        replies.remove(0)
    }

    async fn ask(&mut self, body: request::Body) -> wire::Reply {
        self.last += 1;
        let requests = vec![wire::Request { id: self.last, body: Some(body) }];
        self.questions.send(&wire::Requests { requests }).await.unwrap();
        self.reply().await
    }

    async fn add(&mut self, session: u64, sequence: u64, awaited_from: u64) -> wire::Reply {
        let add = Transaction::of(Operation::Add { key: "n".into(), delta: 1 });
        self.ask(request::Body::Write(wire::Write::of(add, Some(Stamp { session, sequence, awaited_from })))).await
    }
}

fn code(reply: &wire::Reply) -> wire::Code {
    let Some(reply::Body::Error(error)) = &reply.body else { panic!("{reply:?}") };
    error.code()
}

#[tokio::test]
async fn a_reply_names_its_entry_and_a_write_whose_answer_is_not_kept_is_not_said_to_be_of_no_session() {
    let group = Group::start(1);
    group.leader().await;
    let (mut stream, session) = Stream::open(&group.addresses[0]).await;
    let first = stream.add(session, 1, 1).await;
    let second = stream.add(session, 2, 2).await;
    assert!(second.index > first.index && second.term == first.term);
    // Its client has said that it has this answer: it was done, and is not done again.
    assert_eq!(code(&stream.add(session, 1, 2).await), wire::Code::Forgotten);
    let closed = stream.ask(request::Body::CloseSession(wire::CloseSession { session })).await;
    assert!(matches!(closed.body, Some(reply::Body::Session(of)) if of == session), "{closed:?}");
    assert!(closed.index > second.index && closed.term == second.term, "{closed:?}");
    assert_eq!(code(&stream.add(session, 2, 2).await), wire::Code::NoSession);
    assert_eq!(group.client().await.get("n").await.unwrap().unwrap().value, "2");
}

#[tokio::test]
async fn scans_are_counted_and_what_was_refused_is_not_counted_as_applied() {
    let group = Group::start(1);
    group.leader().await;
    let client = group.client().await;
    client.put("text", "no number").await.unwrap();
    let counted = |name: &str| -> u64 {
        let said = get(&group.addresses[0], "/metrics");
        let lines = said.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let (applied, other) = ("dengine_commands_total{outcome=\"applied\"}", "dengine_commands_total{outcome=\"other\"}");
    let before = [counted("dengine_reads_total"), counted(applied), counted(other)];
    let channel = Channel::connect(&group.addresses[0]).await.unwrap();
    for _ in 0..3 {
        let request = second::ScanRequest { client_id: 1, prefix: "text".into() };
        let path = "/d_engine.client.RaftClientService/HandleClientScan";
        let found: second::ScanResponse = channel.unary(path, &request).await.unwrap();
        assert_eq!(found.entries.len(), 1);
        client.add("text", 1).await.unwrap_err();
    }
    let after = [counted("dengine_reads_total"), counted(applied), counted(other)];
    assert_eq!(after, [before[0] + 3, before[1], before[2] + 3]);
}
