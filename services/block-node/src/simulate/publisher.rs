//! Publishes crafted blocks, several in flight, as a consensus node does: it skips, resends and goes back when it is told to.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use service_kit::client::{Channel, GrpcError, StreamReceiver, StreamSender};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{PUBLISH, STATUS, TlsFlags, connect_with};
use crate::craft::{Crafter, Shape};
use crate::messages::{EndCode, EndStreamCode, NO_BLOCK, PublishResponse, WireEra, item_ranges, proto, sets};
use crate::wire::WireError;

/// Answers that were read and not looked at.
const ANSWERS_MAX: usize = 1_024;
/// How long nothing may be heard until the node is asked what it has.
const PATIENCE: Duration = Duration::from_secs(1);

/// What goes wrong on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The connection ends within a block.
    MidBlockEnd,
    /// The publisher says within a block that it ends the stream, and does.
    MidBlockEndStream,
    /// A bit of an item is flipped.
    InvalidHash,
    /// Two items stand in another order.
    Scrambled,
    /// A pause within a block, see --fault-millis.
    Slow,
}

/// What is published.
#[derive(Clone, Debug, Args)]
pub struct PublisherFlags {
    /// HOST:PORT of the node, or https://HOST:PORT
    #[arg(long, default_value = "127.0.0.1:40840")]
    pub address: String,
    /// With an address that begins with https
    #[command(flatten)]
    pub tls: TlsFlags,
    /// First block to send; those before are crafted all the same, since every block names them
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// How many blocks
    #[arg(long, default_value_t = 100)]
    pub blocks: u64,
    /// Size of a block, about, bytes
    #[arg(long, default_value_t = 13_000)]
    pub block_bytes: usize,
    /// Blocks that may wait for their acknowledgement
    #[arg(long, default_value_t = 4)]
    pub window: u64,
    /// Milliseconds from the beginning of one block to the next; 0: as fast as the window allows
    #[arg(long, default_value_t = 0)]
    pub millis_per_block: u64,
    /// Size of a message, bytes
    #[arg(long, default_value_t = 262_144)]
    pub message_bytes: usize,
    /// Whose status codes and framing the node speaks: v0.13, v0.15, v0.20, today
    #[arg(long, default_value = "today")]
    pub wire_era: WireEra,
    /// The same seed makes the same blocks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What goes wrong on purpose
    #[arg(long, value_enum, default_value_t = Fault::None)]
    pub fault: Fault,
    /// In which block
    #[arg(long, default_value_t = 0)]
    pub fault_block: u64,
    /// How long a slow block pauses, milliseconds
    #[arg(long, default_value_t = 10_000)]
    pub fault_millis: u64,
}

/// How it went.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Blocks that were acknowledged, in the order in which they were.
    pub acknowledged: Vec<u64>,
    /// How many of them come before the first that was to be published: the node had fewer blocks, and they were sent as well.
    pub before_first: u64,
    /// Of blocks that were sent here: from their last byte to the acknowledgement, in that order.
    pub latencies: Vec<Duration>,
    /// Bytes of blocks that were sent here and acknowledged.
    pub bytes: u64,
    /// How long all of it took.
    pub took: Duration,
    /// How the node ended the stream, if it did: code, and its last block.
    pub end: Option<(EndCode, u64)>,
    /// The node has all blocks that were to be published, whoever sent them.
    pub is_complete: bool,
    /// What was to go wrong on purpose has gone wrong.
    pub has_failed_on_purpose: bool,
}

impl Published {
    /// Why not all that was asked for came about, and what to do; `None`: it did. A fault is asked for with its answer.
    pub fn shortfall(&self, flags: &PublisherFlags) -> Option<String> {
        let code = self.end.map(|(code, _)| code);
        let is_as_asked = match flags.fault {
            Fault::MidBlockEnd | Fault::MidBlockEndStream if self.has_failed_on_purpose => true,
            Fault::InvalidHash | Fault::Scrambled if self.has_failed_on_purpose => code == Some(EndCode::BadBlockProof),
            Fault::Slow if self.has_failed_on_purpose => self.is_complete || code == Some(EndCode::Timeout),
            _ => self.is_complete,
        };
        if is_as_asked {
            return None;
        }
        let Some((code, last)) = self.end else {
            return Some(match self.is_complete {
                true => format!(
                    "block {} was sent wrong, and the node did not refuse it: did another publisher send it right?",
                    flags.fault_block
                ),
                false => "the node closed the stream before it had acknowledged all: its log says why".into(),
            });
        };
        let next = last.wrapping_add(1);
        let remedy = match code {
            EndCode::DuplicateBlock => format!("--first {next} goes on behind them"),
            EndCode::BadBlockProof => {
                "crafted blocks have no signatures: the node must run with --accept-dummy-proofs; \
                 where it does, its blocks are of another --seed or --block-bytes"
                    .into()
            }
            EndCode::Success => format!("it stops: once it is back, --first {next} goes on"),
            EndCode::InvalidRequest => "its log says what it did not understand; is it of another --wire-era?".into(),
            EndCode::PersistenceFailed => "it cannot write to its disk: its log says why".into(),
            EndCode::Timeout => "a block took too long: its log says which".into(),
            EndCode::Error => "its log says why".into(),
        };
        Some(format!("the node has {} and ended the stream with {code}: {remedy}", LastBlock(last)))
    }
}

/// The last block that a node has, in words.
struct LastBlock(u64);

impl fmt::Display for LastBlock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NO_BLOCK => formatter.write_str("no block yet"),
            last => write!(formatter, "blocks up to {last}"),
        }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64().max(f64::MIN_POSITIVE);
        let mut latencies = self.latencies.clone();
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = (latencies.len() as f64 * share) as usize;
            latencies.get(index.min(latencies.len().saturating_sub(1))).map_or(0, Duration::as_micros)
        };
        write!(
            formatter,
            "{} blocks acknowledged{} in {seconds:.2} s: {:.0} blocks/s, {:.1} MB/s; acknowledgement p50 {} us, p99 {} us",
            self.acknowledged.len(),
            match self.before_first {
                0 => String::new(),
                before => format!(" ({before} of them before --first: the node did not have them yet)"),
            },
            self.acknowledged.len() as f64 / seconds,
            self.bytes as f64 / seconds / 1e6,
            at(0.5),
            at(0.99),
        )?;
        match self.end {
            Some((code, last)) => {
                write!(formatter, "; the node ended the stream: {code}; it has {}", LastBlock(last))
            }
            None => Ok(()),
        }
    }
}

/// A block that is not acknowledged.
struct Kept {
    bytes: Vec<u8>,
    sent: Option<Instant>,
}

struct Publisher<'a> {
    flags: &'a PublisherFlags,
    crafter: Crafter,
    kept: BTreeMap<u64, Kept>,
    next: u64,
    /// One behind the last that is to be acknowledged.
    end: u64,
    published: Published,
}

/// A `PublishStreamRequest`.
pub fn request(request: proto::publish_stream_request::Request) -> proto::PublishStreamRequest {
    proto::PublishStreamRequest { request: Some(request) }
}

/// The stream, which begins with its first message.
struct Link {
    channel: Channel,
    sender: Option<StreamSender<proto::PublishStreamRequest>>,
    reading: Option<JoinHandle<Result<(), GrpcError>>>,
    told: Option<mpsc::Sender<PublishResponse>>,
    era: WireEra,
}

impl Link {
    async fn send(&mut self, message: &proto::PublishStreamRequest) -> Result<(), GrpcError> {
        if let Some(sender) = &mut self.sender {
            return sender.send(message).await;
        }
        let call = self.channel.call(PUBLISH);
        let (sender, receiver) = self.channel.stream(&call, message).await?;
        self.sender = Some(sender);
        self.reading = self.told.take().map(|told| tokio::spawn(listen(receiver, told, self.era)));
        Ok(())
    }

    /// One behind the last block that the node has.
    async fn stored_until(&mut self) -> Result<u64, GrpcError> {
        let call = self.channel.call(STATUS);
        let status: proto::ServerStatusResponse = self.channel.unary(&call, &proto::ServerStatusRequest {}).await?;
        // Older eras do not tell the next block.
        Ok(status.last_available_block.wrapping_add(1))
    }

    /// Says goodbye, and hears the last of it.
    async fn close(mut self, is_ended_by_node: bool) -> Result<(), GrpcError> {
        if let (false, Some(sender)) = (is_ended_by_node, &mut self.sender) {
            let end = proto::EndStream { end_code: EndStreamCode::Reset.number(), ..Default::default() };
            sender.send(&request(proto::publish_stream_request::Request::EndStream(end))).await?;
            sender.finish()?;
        }
        match self.reading {
            None => Ok(()),
            Some(reading) => match reading.await {
                Ok(result) => result,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
        }
    }
}

async fn listen(
    mut receiver: StreamReceiver<proto::PublishStreamResponse>,
    told: mpsc::Sender<PublishResponse>,
    era: WireEra,
) -> Result<(), GrpcError> {
    while let Some(message) = receiver.next().await? {
        let response = PublishResponse::of(message, era);
        let response = response.ok_or_else(|| GrpcError::Decode("a PublishStreamResponse says nothing".into()))?;
        if told.send(response).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Publishes until everything is acknowledged, or the node ends the stream.
pub async fn publish(flags: &PublisherFlags) -> Result<Published, GrpcError> {
    let channel = connect_with(&flags.address, &flags.tls).await?;
    let (told, mut answers) = mpsc::channel(ANSWERS_MAX);
    let mut link = Link { channel, sender: None, reading: None, told: Some(told), era: flags.wire_era };
    let mut publisher = Publisher {
        flags,
        crafter: Crafter::new(flags.seed, 0),
        kept: BTreeMap::new(),
        next: flags.first,
        end: flags.first + flags.blocks,
        published: Published::default(),
    };
    let began = Instant::now();
    while publisher.published.end.is_none() && !publisher.is_done() {
        // Everything that was said is heard before more is sent.
        while let Ok(answer) = answers.try_recv() {
            publisher.hear(answer);
        }
        if publisher.may_send() {
            match publisher.send(&mut link).await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => {
                    if let Some(reading) = link.reading.take() {
                        reading.abort();
                    }
                    publisher.published.took = began.elapsed();
                    return Ok(publisher.published);
                }
                // Perhaps the node has ended the stream, and says why.
                Err(error) => {
                    while let (Some(_), Some(answer)) = (&link.reading, answers.recv().await) {
                        publisher.hear(answer);
                    }
                    if publisher.published.end.is_none() {
                        return Err(error);
                    }
                }
            }
            if flags.millis_per_block > 0 {
                tokio::time::sleep(Duration::from_millis(flags.millis_per_block)).await;
            }
            tokio::task::yield_now().await;
        } else if publisher.published.end.is_none() && !publisher.is_done() {
            match tokio::time::timeout(PATIENCE, answers.recv()).await {
                Ok(Some(answer)) => publisher.hear(answer),
                Ok(None) => break,
                // What others had sent before this publisher came is not acknowledged to it.
                Err(_) if link.stored_until().await? >= publisher.end => {
                    publisher.published.is_complete = true;
                    break;
                }
                Err(_) => {}
            }
        }
    }
    publisher.published.took = began.elapsed();
    publisher.published.is_complete |= publisher.is_done();
    answers.close();
    link.close(publisher.published.end.is_some()).await?;
    Ok(publisher.published)
}

impl Publisher<'_> {
    fn is_done(&self) -> bool {
        self.published.acknowledged.last().is_some_and(|last| last + 1 >= self.end)
    }

    fn acknowledged(&self) -> u64 {
        self.published.acknowledged.last().map_or(self.flags.first, |last| last + 1)
    }

    fn may_send(&self) -> bool {
        self.published.end.is_none() && self.next < self.end && self.next < self.acknowledged() + self.flags.window
    }

    fn hear(&mut self, answer: PublishResponse) {
        match answer {
            PublishResponse::Acknowledgement(number) => {
                self.published.acknowledged.push(number);
                self.published.before_first += u64::from(number < self.flags.first);
                // Acknowledgements of what was there before are heard as well.
                let later = self.kept.split_off(&(number + 1));
                for kept in std::mem::replace(&mut self.kept, later).into_values() {
                    if let Some(sent) = kept.sent {
                        self.published.latencies.push(sent.elapsed());
                        self.published.bytes += kept.bytes.len() as u64;
                    }
                }
                self.next = self.next.max(number + 1);
            }
            PublishResponse::Skip(number) => self.next = self.next.max(number + 1),
            PublishResponse::Resend(number) => self.next = number,
            PublishResponse::Behind(last) => self.next = last.wrapping_add(1),
            PublishResponse::EndOfStream { code, last } => self.published.end = Some((code, last)),
        }
    }

    /// Sends the next block; break: the connection shall end now.
    async fn send(&mut self, link: &mut Link) -> Result<ControlFlow<()>, GrpcError> {
        use proto::publish_stream_request::Request::{BlockItems, EndOfBlock};
        let number = self.next;
        let fault = if self.flags.fault_block == number { self.flags.fault } else { Fault::None };
        let mut block = self.block(number);
        if fault == Fault::InvalidHash {
            // In the middle of an item between header and footer.
            let middle = block.len() / 2;
            block[middle] ^= 1;
        }
        if fault == Fault::Scrambled {
            block = scrambled(&block);
        }
        let block = Bytes::from(block);
        let broken = |error: WireError| GrpcError::Decode(error.to_string());
        if matches!(fault, Fault::MidBlockEnd | Fault::MidBlockEndStream) {
            // The header alone.
            let (header, _) = item_ranges(&block).next().transpose().map_err(broken)?.unwrap_or_default();
            link.send(&request(BlockItems(block.slice(header)))).await?;
            if fault == Fault::MidBlockEndStream {
                let end = proto::EndStream { end_code: EndStreamCode::Reset.number(), ..Default::default() };
                link.send(&request(proto::publish_stream_request::Request::EndStream(end))).await?;
            }
            tokio::task::yield_now().await;
            self.published.has_failed_on_purpose = true;
            return Ok(ControlFlow::Break(()));
        }
        self.published.has_failed_on_purpose |= fault != Fault::None;
        for (index, set) in sets(&block, self.flags.message_bytes).map_err(broken)?.into_iter().enumerate() {
            if fault == Fault::Slow && index == 1 {
                tokio::time::sleep(Duration::from_millis(self.flags.fault_millis)).await;
            }
            link.send(&request(BlockItems(block.slice(set)))).await?;
        }
        if self.flags.wire_era.has_end_of_block() {
            link.send(&request(EndOfBlock(proto::BlockEnd { block_number: number }))).await?;
        }
        if let Some(kept) = self.kept.get_mut(&number) {
            kept.sent = Some(Instant::now());
        }
        self.next = number + 1;
        Ok(ControlFlow::Continue(()))
    }

    fn block(&mut self, number: u64) -> Vec<u8> {
        while self.crafter.number() <= number {
            let block = self.crafter.next(Shape::of_bytes(self.flags.block_bytes));
            // Those before the first are only made so that it continues them.
            if block.number >= self.flags.first {
                self.kept.insert(block.number, Kept { bytes: block.bytes, sent: None });
            }
        }
        match self.kept.get(&number) {
            Some(kept) => kept.bytes.clone(),
            // The node has lost what it had acknowledged, or never had it: made once more.
            None => {
                let mut crafter = Crafter::new(self.flags.seed, 0);
                loop {
                    let block = crafter.next(Shape::of_bytes(self.flags.block_bytes));
                    if block.number == number {
                        return block.bytes;
                    }
                }
            }
        }
    }
}

/// The same items, but for the footer and the one in front of it, which change places. (Of two items of different kinds the order is no part
/// of the root hash.)
fn scrambled(block: &[u8]) -> Vec<u8> {
    let frames: Result<Vec<_>, _> = item_ranges(block).map(|item| item.map(|(frame, _)| frame)).collect();
    match frames.as_deref() {
        Ok([.., one, other, _proof]) => {
            let parts = [&block[..one.start], &block[other.clone()], &block[one.clone()], &block[other.end..]];
            parts.concat()
        }
        _ => block.to_vec(),
    }
}
