//! What must not keep a node behind its peers.

use block_node::connect::address;
use bytes::Bytes;
use service_kit::grpc::{Caller, Requests, Responses, Service, Stream, Unary, encode};
use service_kit::listen::Group;
use service_kit::server::Bound;

use super::scrub::{becomes, metric};
use super::*;

/// A peer that says that it has a thousand blocks, and sends one of them for ever.
struct Repeating(Bytes);

impl Service for Repeating {
    type Method = ();

    fn method(&self, path: &str) -> Option<((), bool)> {
        Some(((), path == SUBSCRIBE))
    }

    fn unary(&self, (): (), _: Caller, _: Bytes) -> Unary {
        Unary::Now(Ok(encode(&proto::ServerStatusResponse {
            first_available_block: 0,
            last_available_block: 999,
            only_latest_state: false,
            next_expected_block: 1_000,
        })))
    }

    fn stream(&self, (): (), _: Caller, _: Requests, responses: Responses) -> Stream {
        use proto::subscribe_stream_response::Response::{BlockItems, EndOfBlock};
        let block = self.0.clone();
        Box::pin(async move {
            loop {
                for response in [BlockItems(block.clone()), EndOfBlock(proto::BlockEnd { block_number: 2 })] {
                    let message = proto::SubscribeStreamResponse { response: Some(response) };
                    if responses.send(encode(&message)).await.is_err() {
                        return Ok(());
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }
}

#[test]
fn a_peer_that_repeats_an_old_block_does_not_keep_others_from_being_asked() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let peer = Server::start(theirs.path(), &[]);
    let server = Server::start(ours.path(), &[]);
    run(async {
        publish(&publisher(&peer, 0, 20)).await.unwrap();
        publish(&publisher(&server, 0, 4)).await.unwrap();
        server.kill();
        let old = Bytes::from(crafted(3).swap_remove(2));
        let any = address("127.0.0.1:0").unwrap();
        let bound = Bound::bind(&[Group { urls: &[any], grpc: true, http: true }]).unwrap();
        let mut repeating = bound.start(Default::default(), move |_| Repeating(old.clone())).unwrap();
        let peers = format!("{},{}", repeating.addresses()[0], peer.address);
        let server = Server::start(ours.path(), &["--backfill-peers", &peers]);
        tokio::select! {
            () = has_up_to(&server, 19) => {}
            accepted = repeating.accept() => panic!("{accepted:?}"),
        }
        becomes(&server, "block_node_backfill_failures_total", |failures| failures > 0).await;
        repeating.stop();
    });
}

#[test]
fn who_publishes_a_block_now_and_then_does_not_keep_a_node_far_behind() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let peer = Server::start(theirs.path(), &[]);
    let server = Server::start(ours.path(), &["--backfill-peers", &peer.address]);
    run(async {
        let slow = PublisherFlags { millis_per_block: 100, ..publisher(&server, 0, 10_000) };
        let slow = tokio::spawn(async move { publish(&slow).await });
        status_becomes(&server, |status| status.next_expected_block >= 2).await;
        publish(&publisher(&peer, 0, 2_000)).await.unwrap();
        // Alone it would take more than three minutes.
        status_becomes(&server, |status| status.last_available_block >= 1_999).await;
        let result = read_all(&server, 1_999).await;
        assert_eq!((result.blocks, result.wrong), (2_000, None));
        slow.abort();
    });
}

#[test]
fn a_header_that_came_and_went_does_not_keep_a_greedy_node_empty() {
    use proto::publish_stream_request::Request::BlockItems;
    let (ours, theirs) = (harness::folder(), harness::folder());
    let peer = Server::start(theirs.path(), &["--block-node-earliest-managed-block", "200"]);
    let server = Server::start(ours.path(), &["--backfill-peers", &peer.address, "--backfill-greedy"]);
    run(async {
        let block = crafted(1).swap_remove(0);
        let header = item_ranges(&block).next().unwrap().unwrap().0;
        let mut channel = connect(&server.address).await.unwrap();
        let call = channel.call(PUBLISH);
        let set = request(BlockItems(Bytes::copy_from_slice(&block[header])));
        let stream: (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
            channel.stream(&call, &set).await.unwrap();
        becomes(&server, "block_node_publishers", |publishers| publishers == 1).await;
        drop((stream, channel));
        becomes(&server, "block_node_publishers", |publishers| publishers == 0).await;
        publish(&publisher(&peer, 200, 30)).await.unwrap();
        status_becomes(&server, |status| status.last_available_block == 229).await;
        assert_eq!(metric(&server, "block_node_backfill_failures_total").await, 0, "a peer may have no block yet");
    });
}

#[test]
fn who_waits_for_live_blocks_of_an_empty_node_gets_the_first_that_a_peer_still_had() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let peer = Server::start(theirs.path(), &["--block-node-earliest-managed-block", "200"]);
    let server = Server::start(ours.path(), &["--backfill-peers", &peer.address, "--backfill-greedy"]);
    run(async {
        let (seen, mut saw) = tokio::sync::mpsc::unbounded_channel();
        let flags = consumer(&server, None, None);
        let subscriber = tokio::spawn(async move { read(&flags, |block| seen.send(block.number).unwrap()).await });
        becomes(&server, "block_node_subscribers", |subscribers| subscribers == 1).await;
        publish(&publisher(&peer, 200, 30)).await.unwrap();
        let first = tokio::time::timeout(harness::LONG, saw.recv()).await.expect("a block");
        assert_eq!(first, Some(200), "{:?}", subscriber.is_finished());
        subscriber.abort();
    });
}

/// Of the node's state, as far as peers keep it behind.
async fn gap(server: &Server) -> Vec<String> {
    let mut channel = connect(&server.address).await.unwrap();
    let call = channel.call("/org.hiero.block.api.BlockNodeService/serverStatusDetail");
    let detail: proto::ServerStatusDetailResponse = channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap();
    let plugins = detail.version_information.unwrap().installed_plugin_versions;
    let backfill = plugins.into_iter().find(|plugin| plugin.plugin_id == "backfill");
    backfill.map(|plugin| plugin.plugin_feature_names).unwrap_or_default()
}

#[test]
fn who_stays_behind_since_no_peer_has_the_next_block_says_so_until_it_comes() {
    let (ours, theirs) = (harness::folder(), harness::folder());
    let peer = Server::start(theirs.path(), &["--block-node-earliest-managed-block", "20"]);
    let server = Server::start(ours.path(), &["--backfill-peers", &peer.address, "--backfill-greedy"]);
    run(async {
        publish(&publisher(&server, 0, 3)).await.unwrap();
        assert!(gap(&server).await.is_empty());
        publish(&publisher(&peer, 20, 5)).await.unwrap();
        let is_said = async |said: &[&str]| {
            let wait = async {
                while gap(&server).await != said {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(harness::LONG, wait).await.expect("what the status says");
        };
        let said = "stays behind: no peer has brought block 3, and the next one that one of them has is block 20";
        is_said(&[said]).await;
        assert_eq!(status(&server).await.next_expected_block, 3);
        publish(&publisher(&server, 3, 30)).await.unwrap();
        is_said(&[]).await;
    });
}
