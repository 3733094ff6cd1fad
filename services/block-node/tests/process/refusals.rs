//! What is wrong is refused, with the code of the era, and costs no other block.

use super::scrub::becomes;
use super::*;

#[test]
fn a_wrong_block_is_refused_and_the_right_one_taken_from_another_publisher() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        let bad = PublisherFlags { fault: Fault::InvalidHash, fault_block: 5, window: 1, ..publisher(&server, 0, 10) };
        let published = publish(&bad).await.unwrap();
        assert_eq!(published.end, Some((EndCode::BadBlockProof, 4)));
        assert_eq!(published.acknowledged, [0, 1, 2, 3, 4]);
        let cut = PublisherFlags { fault: Fault::MidBlockEnd, fault_block: 7, ..publisher(&server, 5, 5) };
        publish(&cut).await.unwrap();
        let next = status(&server).await.next_expected_block;
        let published = publish(&publisher(&server, next, 10 - next)).await.unwrap();
        assert_eq!(published.end, None);
        assert_eq!(published.acknowledged.last(), Some(&9));
        let result = read_all(&server, 9).await;
        assert_eq!((result.blocks, result.wrong), (10, None));
    });
}

#[test]
fn every_fault_of_the_simulator_is_answered_as_it_should_be_and_costs_no_other_block() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        for (number, fault, code) in [
            (0, Fault::InvalidHash, Some(EndCode::BadBlockProof)),
            (2, Fault::Scrambled, Some(EndCode::BadBlockProof)),
            (4, Fault::MidBlockEnd, None),
            (6, Fault::MidBlockEndStream, None),
        ] {
            let flags = PublisherFlags { fault, fault_block: number + 1, window: 1, ..publisher(&server, number, 4) };
            let published = publish(&flags).await.unwrap();
            assert_eq!(published.end, code.map(|code| (code, number)), "{fault:?}");
            assert_eq!(status(&server).await.last_available_block, number, "{fault:?}");
            let published = publish(&publisher(&server, number + 1, 1)).await.unwrap();
            assert_eq!(published.end, None, "{fault:?}: the right block comes behind");
        }
        // Three later blocks are whole while this one pauses: its publisher is told so, and the others are asked for it.
        let slow =
            PublisherFlags { fault: Fault::Slow, fault_block: 8, fault_millis: 8_000, ..publisher(&server, 8, 1) };
        let slow = tokio::spawn(async move { publish(&slow).await.unwrap() });
        status_becomes(&server, |status| status.last_available_block == 7).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let others = publish(&PublisherFlags { window: 8, ..publisher(&server, 8, 6) }).await.unwrap();
        assert_eq!((others.end, others.acknowledged.last()), (None, Some(&13)));
        assert!(matches!(slow.await.unwrap().end, Some((EndCode::Timeout, _))));
        let result = read_all(&server, 13).await;
        assert_eq!((result.blocks, result.wrong), (14, None));
    });
}

#[test]
fn requests_that_break_the_rules_are_answered_with_the_right_codes() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        publish(&publisher(&server, 0, 10)).await.unwrap();
        for (start, end, status) in [(5, Some(4), 5), (9_999, None, 6)] {
            let result = read(&consumer(&server, Some(start), end), |_| ()).await.unwrap();
            assert_eq!((result.blocks, result.status), (0, status));
        }
        for (request, code) in [
            (&[][..], EndCode::InvalidRequest),
            (&[0x1a, 2, 0x08, 10], EndCode::InvalidRequest),
            // Items without a header.
            (&[0x0a, 5, 0x0a, 3, 0x22, 1, 0], EndCode::InvalidRequest),
            // A header without anything.
            (&[0x0a, 4, 0x0a, 2, 0x0a, 0], EndCode::BadBlockProof),
        ] {
            let mut channel = connect(&server.address).await.unwrap();
            let call = channel.call(PUBLISH);
            let (_sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
                channel.stream(&call, &Raw::of(request)).await.unwrap();
            let answer = receiver.next().await.unwrap().unwrap();
            let expected = PublishResponse::EndOfStream { code, last: 9 };
            assert_eq!(PublishResponse::of(answer, WireEra::Today), Some(expected), "{request:?}");
            assert_eq!(receiver.next().await, Ok(None), "the stream is over");
        }
        let mut channel = connect(&server.address).await.unwrap();
        let call = channel.call("/org.hiero.block.api.StateService/stateSnapshot");
        let unknown = channel.unary::<Raw, Raw>(&call, &Raw::default()).await.unwrap_err().to_string();
        assert!(unknown.contains("code 12"), "UNIMPLEMENTED: {unknown}");
    });
}

/// Sends these messages on a stream of its own; what the node answers first.
async fn answer_to(channel: &mut Channel, messages: &[proto::PublishStreamRequest]) -> PublishResponse {
    let call = channel.call(PUBLISH);
    let (mut sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
        channel.stream(&call, &messages[0]).await.unwrap();
    for message in &messages[1..] {
        // It may have ended the stream by then.
        if sender.send(message).await.is_err() {
            break;
        }
    }
    let answer = receiver.next().await.unwrap().unwrap();
    PublishResponse::of(answer, WireEra::Today).unwrap()
}

#[test]
fn every_flipped_bit_of_an_item_a_footer_or_a_proof_is_refused_with_the_right_code() {
    use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        let shape = Shape { items: 2, item_bytes: 20 };
        let mut crafter = Crafter::new(1, 0);
        let blocks: Vec<_> = (0..3).map(|_| crafter.next(shape)).collect();
        let mut channel = connect(&server.address).await.unwrap();
        let messages = |block: &[u8]| {
            let end = EndOfBlock(proto::BlockEnd { block_number: 2 });
            [request(BlockItems(bytes::Bytes::copy_from_slice(block))), request(end)]
        };
        for block in &blocks[..2] {
            let end = request(EndOfBlock(proto::BlockEnd { block_number: block.number }));
            let answer = answer_to(&mut channel, &[request(BlockItems(block.bytes.clone().into())), end]).await;
            assert_eq!(answer, PublishResponse::Acknowledgement(block.number));
        }
        let block = &blocks[2].bytes;
        let ranges: Vec<_> = item_ranges(block).map(|item| item.unwrap().1).collect();
        for (index, range) in ranges.iter().enumerate() {
            for place in range.clone() {
                for bit in 0..8 {
                    let mut flipped = block.clone();
                    flipped[place] ^= 1 << bit;
                    let answer = answer_to(&mut channel, &messages(&flipped)).await;
                    let what = || format!("bit {bit} of byte {place}, item {index}: {answer:?}");
                    match (index, &answer) {
                        (_, PublishResponse::EndOfStream { code: EndCode::BadBlockProof, last: 1 }) => {}
                        // A header that is none; one of another block.
                        (0, PublishResponse::EndOfStream { code: EndCode::InvalidRequest, .. }) => {}
                        (0, PublishResponse::Behind(1) | PublishResponse::Skip(0)) => {}
                        _ => panic!("{}", what()),
                    }
                }
            }
        }
        assert_eq!(status(&server).await.last_available_block, 1);
        assert_eq!(answer_to(&mut channel, &messages(block)).await, PublishResponse::Acknowledgement(2));
    });
}

#[test]
fn a_client_that_opens_streams_in_every_place_and_says_nothing_keeps_nobody_out() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &["--publishers-max", "8"]);
    run(async {
        let mut channel = connect(&server.address).await.unwrap();
        let mut silent = Vec::new();
        for _ in 0..8 {
            let call = channel.call(PUBLISH);
            // No item: nothing that would be refused.
            let nothing = request(proto::publish_stream_request::Request::BlockItems(bytes::Bytes::new()));
            let streams: (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
                channel.stream(&call, &nothing).await.unwrap();
            silent.push(streams);
        }
        // Who opens a stream does not wait for the server: one that comes behind the honest one would take its place.
        becomes(&server, "block_node_publishers", |publishers| publishers == 8).await;
        let published = publish(&publisher(&server, 0, 3)).await.unwrap();
        assert_eq!((published.acknowledged, published.end), (vec![0, 1, 2], None));
        let told = silent[0].1.next().await.unwrap().unwrap();
        let told = PublishResponse::of(told, WireEra::Today).unwrap();
        assert!(matches!(told, PublishResponse::EndOfStream { code: EndCode::Timeout, .. }), "{told:?}");
    });
}

#[test]
fn older_eras_are_spoken_with_their_codes_and_their_ends_of_blocks() {
    for (name, behind, duplicate, not_available) in
        [("v0.13", 5, 3, [4, 4]), ("v0.15", 7, 5, [6, 5]), ("v0.20", 7, 5, [6, 5])]
    {
        let era: WireEra = name.parse().unwrap();
        let directory = harness::folder();
        let server = Server::start(directory.path(), &["--wire-era", name]);
        run(async {
            let flags = PublisherFlags { wire_era: era, ..publisher(&server, 0, 20) };
            let published = publish(&flags).await.unwrap();
            assert_eq!((published.acknowledged.len(), published.end), (20, None), "{name}");
            let flags = ConsumerFlags { wire_era: era, ..consumer(&server, Some(0), Some(19)) };
            let result = read(&flags, |_| ()).await.unwrap();
            assert_eq!((result.blocks, result.wrong, result.status), (20, None, 1), "{name}");
            let late = ConsumerFlags { wire_era: era, ..consumer(&server, Some(9_999), None) };
            assert_eq!(read(&late, |_| ()).await.unwrap().status, not_available[0], "{name}");
            assert_eq!(get_block(&server, &[0x08, 99]).await.status, not_available[1], "{name}");
            // Field 4 was a message then.
            let mut channel = connect(&server.address).await.unwrap();
            let call = channel.call(STATUS);
            let status: proto::OldServerStatusResponse =
                channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap();
            assert_eq!((status.last_available_block, status.version_information.is_some()), (19, name == "v0.13"));
            // Whole blocks: one that is far behind, one that is ahead, and the next.
            let blocks = crafted(23);
            let call = channel.call(PUBLISH);
            for (number, expected) in [(2, duplicate), (22, behind)] {
                let items = proto::publish_stream_request::Request::BlockItems(blocks[number].clone().into());
                let (_sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
                    channel.stream(&call, &request(items)).await.unwrap();
                let answer = receiver.next().await.unwrap().unwrap().response.unwrap();
                let end = proto::EndOfStream { status: expected, block_number: 19, proximate_block_number: 0 };
                assert_eq!(answer, proto::publish_stream_response::Response::EndStream(end), "{name}");
                assert_eq!(receiver.next().await, Ok(None), "{name}: the stream is over");
            }
            let items =
                |number: usize| proto::publish_stream_request::Request::BlockItems(blocks[number].clone().into());
            let (mut sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::PublishStreamResponse>) =
                channel.stream(&call, &request(items(20))).await.unwrap();
            if era.has_end_of_block() {
                let end = proto::publish_stream_request::Request::EndOfBlock(proto::BlockEnd { block_number: 20 });
                sender.send(&request(end)).await.unwrap();
            }
            let mut crafter = Crafter::new(1, 0);
            (0..20).for_each(|_| drop(crafter.next(Shape::of_bytes(BLOCK_BYTES))));
            let root = crafter.next(Shape::of_bytes(BLOCK_BYTES)).root.to_vec();
            let block_root_hash = if era.acknowledges_root() { root.into() } else { Default::default() };
            let expected = proto::BlockAcknowledgement { block_number: 20, block_root_hash };
            let answer = receiver.next().await.unwrap().unwrap().response.unwrap();
            assert_eq!(answer, proto::publish_stream_response::Response::Acknowledgement(expected), "{name}");
        });
    }
}
