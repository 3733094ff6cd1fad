//! Clients that do as little as they can: blocks are made before, and not verified when they come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use block_node::messages::{GET_BLOCK, PUBLISH, PublishResponse, STATUS, SUBSCRIBE, WireEra, proto, sets};
use block_node::simulate::{connect, request};
use bytes::Bytes;
use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use service_kit::client::{StreamReceiver, StreamSender};
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use super::clock::Clock;

const MESSAGE_BYTES: usize = 262_144;

/// When blocks are sent.
#[derive(Clone, Copy)]
pub enum Pace {
    /// As fast as the window allows.
    Closed,
    /// One after the other so far apart; latencies are from the moment when each was due.
    Every(Duration),
}

/// Of many requests.
pub struct Latencies(Vec<Duration>);

impl Latencies {
    pub fn of(mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self(latencies)
    }

    /// The one below which this share of them lies.
    pub fn at(&self, share: f64) -> Duration {
        self.0[((self.0.len() as f64 * share) as usize).min(self.0.len() - 1)]
    }
}

pub async fn status(address: &str) -> proto::ServerStatusResponse {
    let mut channel = connect(address).await.unwrap();
    let call = channel.call(STATUS);
    channel.unary(&call, &proto::ServerStatusRequest {}).await.unwrap()
}

/// Reads so many blocks of the first ones of all, in no order, one after the other.
pub async fn get(address: &str, blocks: u64, requests: usize) -> Latencies {
    use proto::block_request::BlockSpecifier::BlockNumber;
    let mut channel = connect(address).await.unwrap();
    let call = channel.call(GET_BLOCK);
    let mut random = SmallRng::seed_from_u64(1);
    let mut latencies = Vec::with_capacity(requests);
    for round in 0..requests + requests / 10 {
        let request = proto::BlockRequest { block_specifier: Some(BlockNumber(random.random_range(0..blocks))) };
        let began = Instant::now();
        let response: proto::BlockResponse = channel.unary(&call, &request).await.unwrap();
        // The first tenth warms up.
        if round >= requests / 10 {
            latencies.push(began.elapsed());
        }
        assert_eq!(response.status, 1);
    }
    Latencies::of(latencies)
}

/// What is sent of a block: its items, and its end.
fn messages(number: u64, block: &Bytes) -> Vec<proto::PublishStreamRequest> {
    let sets = sets(block, MESSAGE_BYTES).unwrap().into_iter().map(|set| request(BlockItems(block.slice(set))));
    sets.chain([request(EndOfBlock(proto::BlockEnd { block_number: number }))]).collect()
}

type Sender = StreamSender<proto::PublishStreamRequest>;

/// A stream with its answers. It begins with an empty set.
async fn publisher(address: &str) -> (Sender, mpsc::UnboundedReceiver<PublishResponse>) {
    let mut channel = connect(address).await.unwrap();
    let call = channel.call(PUBLISH);
    let (sender, mut receiver): (Sender, StreamReceiver<proto::PublishStreamResponse>) =
        channel.stream(&call, &request(BlockItems(Bytes::new()))).await.unwrap();
    let (told, answers) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        // The stream lives as long as its channel.
        let _channel = channel;
        while let Ok(Some(message)) = receiver.next().await {
            let Some(answer) = PublishResponse::of(message, WireEra::Today) else { break };
            if told.send(answer).is_err() {
                break;
            }
        }
    });
    (sender, answers)
}

/// What became of blocks that were published.
pub struct Published {
    /// From the moment when each was sent, or due, to its acknowledgement.
    pub acknowledged: Latencies,
    /// How late each was sent: of the former, what is the loader's and not the node's.
    pub late: Latencies,
}

/// Publishes all of these blocks.
pub async fn publish(address: &str, blocks: &[Bytes], window: u64, pace: Pace) -> Published {
    let (mut sender, mut answers) = publisher(address).await;
    let (clock, mut late) = (Clock::new(), Vec::with_capacity(blocks.len()));
    let (mut sent, mut latencies) = (Vec::with_capacity(blocks.len()), Vec::with_capacity(blocks.len()));
    let began = Instant::now();
    let mut heard = |answer: Option<PublishResponse>, sent: &[Instant]| match answer {
        Some(PublishResponse::Acknowledgement(number)) => latencies.push(sent[number as usize].elapsed()),
        other => panic!("{other:?}"),
    };
    let mut acknowledged = 0;
    for (number, block) in (0..).zip(blocks) {
        while number >= acknowledged + window {
            heard(answers.recv().await, &sent);
            acknowledged += 1;
        }
        let due = match pace {
            Pace::Closed => Instant::now(),
            Pace::Every(apart) => began + apart * number as u32,
        };
        while Instant::now() < due {
            tokio::select! {
                biased;
                answer = answers.recv() => {
                    heard(answer, &sent);
                    acknowledged += 1;
                }
                () = clock.until(due) => {}
            }
        }
        sent.push(due);
        late.push(due.elapsed());
        for message in messages(number, block) {
            sender.send(&message).await.unwrap();
        }
        tokio::task::yield_now().await;
        while let Ok(answer) = answers.try_recv() {
            heard(Some(answer), &sent);
            acknowledged += 1;
        }
    }
    while acknowledged < blocks.len() as u64 {
        heard(answers.recv().await, &sent);
        acknowledged += 1;
    }
    Published { acknowledged: Latencies::of(latencies), late: Latencies::of(late) }
}

/// Publishes to so many subscribers who wait; how long until all of them have all blocks, and how much of that behind the last
/// acknowledgement.
pub async fn fan_out(address: &str, blocks: &[Bytes], subscribers: usize) -> (Duration, Duration) {
    let last = blocks.len() as u64 - 1;
    let mut tasks = Vec::new();
    for _ in 0..subscribers {
        let mut channel = connect(address).await.unwrap();
        let call = channel.call(SUBSCRIBE);
        let request = proto::SubscribeStreamRequest { start_block_number: 0, end_block_number: last, filter: None };
        let (sender, mut receiver): (StreamSender<_>, StreamReceiver<proto::SubscribeStreamResponse>) =
            channel.stream(&call, &request).await.unwrap();
        tasks.push(tokio::spawn(async move {
            let (_sender, _channel) = (sender, channel);
            let mut ends = 0;
            while let Some(message) = receiver.next().await.unwrap() {
                ends += u64::from(matches!(
                    message.response,
                    Some(proto::subscribe_stream_response::Response::EndOfBlock(_))
                ));
            }
            assert_eq!(ends, last + 1);
        }));
    }
    let began = Instant::now();
    publish(address, blocks, 16, Pace::Closed).await;
    let acknowledged = Instant::now();
    for task in tasks {
        task.await.unwrap();
    }
    (began.elapsed(), acknowledged.elapsed())
}

/// The same blocks from several publishers, each due at the same moment. As a consensus node does, each sends the header, and the rest
/// where it is not told to skip the block.
pub async fn race(address: &str, blocks: &[Bytes], publishers: usize, apart: Duration) {
    const PATIENCE: Duration = Duration::from_millis(1);
    let blocks: Arc<Vec<Bytes>> = Arc::new(blocks.to_vec());
    let begin = Instant::now() + Duration::from_millis(200);
    let mut tasks = Vec::new();
    for _ in 0..publishers {
        let (mut sender, mut answers) = publisher(address).await;
        let blocks = Arc::clone(&blocks);
        // One behind the last block that need not be sent.
        let passed = Arc::new(AtomicU64::new(0));
        let of_answers = Arc::clone(&passed);
        let answering = tokio::spawn(async move {
            while let Some(answer) = answers.recv().await {
                match answer {
                    PublishResponse::Acknowledgement(number) | PublishResponse::Skip(number) => {
                        of_answers.fetch_max(number + 1, Ordering::Relaxed);
                    }
                    PublishResponse::EndOfStream { .. } => break,
                    // Somebody has gone in the middle of a block, at the end.
                    PublishResponse::Resend(_) | PublishResponse::Behind(_) => {}
                }
            }
        });
        tasks.push(tokio::spawn(async move {
            for (number, block) in (0..).zip(blocks.iter()) {
                sleep_until((begin + apart * number as u32).into()).await;
                if passed.load(Ordering::Relaxed) > number {
                    continue;
                }
                // The header is the first item; sets of one byte are sets of one item.
                let header = sets(block, 1).unwrap().swap_remove(0);
                let rest = header.end..block.len();
                // On a machine that is busy with other things one may come too late, and is told so by the end of its stream.
                if sender.send(&request(BlockItems(block.slice(header)))).await.is_err() {
                    return;
                }
                sleep(PATIENCE).await;
                if passed.load(Ordering::Relaxed) <= number {
                    let end = EndOfBlock(proto::BlockEnd { block_number: number });
                    for message in [BlockItems(block.slice(rest)), end] {
                        if sender.send(&request(message)).await.is_err() {
                            return;
                        }
                    }
                }
            }
            while passed.load(Ordering::Relaxed) < blocks.len() as u64 && !answering.is_finished() {
                sleep(PATIENCE).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    while status(address).await.next_expected_block < blocks.len() as u64 {
        sleep(PATIENCE).await;
    }
}

async fn metrics(address: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

pub async fn metric(address: &str, name: &str) -> f64 {
    let metrics = metrics(address).await;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} is not told")).parse().unwrap()
}

/// What a histogram was given, on average, and how often.
pub async fn mean_of_metric(address: &str, name: &str) -> (Duration, f64) {
    let (sum, count) = (metric(address, &format!("{name}_sum")).await, metric(address, &format!("{name}_count")).await);
    (Duration::from_secs_f64(sum / count.max(1.0)), count)
}
