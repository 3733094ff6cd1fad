//! Who may call and how much: tokens, quotas, and how many messages publishers may send.

use std::time::Instant;

use super::scrub::metric;
use super::*;

/// The hashes of `may-read` and `may-publish`.
const HASHES: [&str; 2] = [
    "3d63f0abe768860c6e3b43909cdcbdc0494e16fecd78298c498a33e77c6bde39",
    "dde0d5038d854f5fdcf99f9b912cde93a192318c60c4585458c420b9753343a8",
];

#[test]
fn who_shows_no_token_is_refused_and_the_others_may_do_what_the_file_says() {
    let directory = harness::folder();
    let written = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let [reads, publishes] = HASHES;
    let clients = written(
        "clients.toml",
        &format!(
            "[[client]]\nname = \"mirror\"\ntoken-sha256 = \"{reads}\"\nmay = [\"read\"]\nbytes-per-second = 200_000\n\
             [[client]]\nname = \"consensus\"\ntoken-sha256 = \"{publishes}\"\nmay = [\"publish\"]\n"
        ),
    );
    let with = |name: &str| TlsFlags { token_file: Some(written(name, name)), ..TlsFlags::default() };
    let (may_read, may_publish, unknown) = (with("may-read"), with("may-publish"), with("unknown"));
    let server = Server::start(&directory.path().join("data"), &["--clients", clients.to_str().unwrap()]);
    let refused = |result: Result<_, GrpcError>, code: &str| {
        let error = result.map(|_: u64| ()).unwrap_err().to_string();
        assert!(error.contains(code), "{error}");
    };
    run(async {
        let publisher = |tls: &TlsFlags| PublisherFlags { tls: tls.clone(), ..publisher(&server, 0, 100) };
        let consumer = |tls: &TlsFlags| ConsumerFlags { tls: tls.clone(), ..consumer(&server, Some(0), Some(99)) };
        for (tls, code) in [(&TlsFlags::default(), "code 16"), (&unknown, "code 16"), (&may_publish, "code 7")] {
            refused(read(&consumer(tls), |_| ()).await.map(|read| read.blocks), code);
        }
        // Who is told so while it still sends may hear no more than that the stream is over.
        assert!(publish(&publisher(&may_read)).await.is_err());
        assert!(http(&server, "/metrics").await.contains("block_node_last_block -1\n"));
        let published = publish(&publisher(&may_publish)).await.unwrap();
        assert_eq!(published.acknowledged.len(), 100);
        let began = Instant::now();
        assert_eq!(read(&consumer(&may_read), |_| ()).await.unwrap().blocks, 100);
        // 300 KB, of which a second's worth came at once.
        assert!(began.elapsed() > Duration::from_millis(400), "{:?}", began.elapsed());
        // Nobody needs a name for these.
        assert!(http(&server, "/metrics").await.contains("block_node_last_block 99"));
    });
}

#[test]
fn a_publisher_is_read_from_as_often_as_its_budget_allows() {
    let directory = harness::folder();
    let flags =
        ["--producer-per-handler-message-budget=10", "--producer-flow-control-refresh-interval-nanos=100000000"];
    let server = Server::start(directory.path(), &flags);
    run(async {
        let began = Instant::now();
        let published = publish(&PublisherFlags { window: 64, ..publisher(&server, 0, 25) }).await.unwrap();
        assert_eq!(published.acknowledged.len(), 25);
        // Of four messages and more each.
        assert!(began.elapsed() > Duration::from_millis(700), "{:?}", began.elapsed());
        assert_eq!(metric(&server, "block_node_publisher_pauses_total").await, 0, "it has rested soon enough");
    });
}

#[test]
fn what_a_client_asks_with_counts_as_what_it_is_answered() {
    let directory = harness::folder();
    let clients = directory.path().join("clients.toml");
    let token = "may-read";
    std::fs::write(
        &clients,
        format!("[[client]]\nname = \"a\"\ntoken-sha256 = \"{}\"\nbytes-per-second = 1_000_000\n", HASHES[0]),
    )
    .unwrap();
    let server = Server::start(&directory.path().join("data"), &["--clients", clients.to_str().unwrap()]);
    run(async {
        let mut channel = connect(&server.address).await.unwrap();
        channel.set_metadata(http::header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        let call = channel.call("/org.hiero.block.api.ProofService/getBlockContentsProof");
        // An item of a megabyte.
        let item = [&[0x08, 9, 0x12, 0xc0, 0x84, 0x3d][..], &vec![7; 1_000_000]].concat();
        let began = Instant::now();
        for _ in 0..3 {
            let answer: proto::BlockContentsProofResponse = channel.unary(&call, &Raw::of(&item)).await.unwrap();
            assert_eq!(answer.status, 5);
        }
        // A second's worth comes at once.
        assert!(began.elapsed() > Duration::from_millis(900), "{:?}", began.elapsed());
    });
}

/// Who began a new stream for each message waited for none of them.
#[test]
fn a_publisher_that_begins_a_new_stream_waits_for_what_it_has_taken_by_the_one_before() {
    use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
    let directory = harness::folder();
    let clients = directory.path().join("clients.toml");
    let text = format!("[[client]]\nname = \"a\"\ntoken-sha256 = \"{}\"\nbytes-per-second = 1_000_000\n", HASHES[1]);
    std::fs::write(&clients, text).unwrap();
    let server = Server::start(&directory.path().join("data"), &["--clients", clients.to_str().unwrap()]);
    let mut crafter = Crafter::new(1, 0);
    run(async {
        let mut channel = connect(&server.address).await.unwrap();
        channel.set_metadata(http::header::AUTHORIZATION, "Bearer may-publish".parse().unwrap());
        let call = channel.call(PUBLISH);
        for number in 0..2 {
            let began = Instant::now();
            let set = request(BlockItems(crafter.next(Shape::of_bytes(2_500_000)).bytes.into()));
            let (mut sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
                channel.stream(&call, &set).await.unwrap();
            sender.send(&request(EndOfBlock(proto::BlockEnd { block_number: number }))).await.unwrap();
            let told = PublishResponse::of(receiver.next().await.unwrap().unwrap(), WireEra::Today);
            assert_eq!(told, Some(PublishResponse::Acknowledgement(number)));
            // Of what was taken before a second's worth comes at once.
            assert!(number == 0 || began.elapsed() > Duration::from_millis(1_000), "{:?}", began.elapsed());
        }
    });
}
