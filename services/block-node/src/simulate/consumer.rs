//! Subscribes, verifies every block, and compares it with the one before.

use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::time::{Duration, Instant};

use clap::Args;
use service_kit::client::GrpcError;
use tokio::time::timeout;

use super::{SUBSCRIBE, TlsFlags, connect_with};
use crate::block::{Limits, ProofRules, Verified};
use crate::messages::{NO_BLOCK, SubscribeCode, WireEra, ends_with_proof, proto};

/// How long nothing may come until it is said for what this waits: blocks come every few seconds at the latest.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is read.
#[derive(Clone, Debug, Args)]
pub struct ConsumerFlags {
    /// HOST:PORT of the node, or https://HOST:PORT
    #[arg(long, default_value = "127.0.0.1:40840")]
    pub address: String,
    /// With an address that begins with https
    #[command(flatten)]
    pub tls: TlsFlags,
    /// First block; absent: the next one that is published
    #[arg(long)]
    pub start: Option<u64>,
    /// Last block; absent: go on until the node stops
    #[arg(long)]
    pub end: Option<u64>,
    /// Whose framing the node speaks: v0.13, v0.15, v0.20, today
    #[arg(long, default_value = "today")]
    pub wire_era: WireEra,
    /// Wait so long behind each block, milliseconds
    #[arg(long, default_value_t = 0)]
    pub slow_millis: u64,
    /// Items of these kinds alone, by their field in BlockItem, separated by commas; of the others their hashes come
    #[arg(long, value_delimiter = ',', value_parser = item_kind, conflicts_with = "without_items")]
    pub only_items: Vec<u32>,
    /// All items but those of these kinds
    #[arg(long, value_delimiter = ',', value_parser = item_kind)]
    pub without_items: Vec<u32>,
}

fn item_kind(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "expected the number of a kind of item, its field in BlockItem, such as 4 of transactions".into())
}

impl ConsumerFlags {
    fn filter(&self) -> Option<proto::BlockStreamFilter> {
        let (include, fields) = match self.only_items.is_empty() {
            true => (false, &self.without_items),
            false => (true, &self.only_items),
        };
        (!fields.is_empty()).then(|| proto::BlockStreamFilter { include, block_item_types: fields.clone() })
    }
}

/// How it went.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Number of blocks.
    pub blocks: u64,
    /// The last of them.
    pub last: Option<u64>,
    /// Their bytes.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
    /// The status at the end, as the node's number says; 0: none came.
    pub status: i32,
    /// What that number means.
    pub code: Option<SubscribeCode>,
    /// What was wrong first.
    pub wrong: Option<String>,
    /// It was asked to end before the stream did.
    pub is_ended: bool,
}

impl Read {
    /// Why not all that was asked for came; `None`: it did. `stored`: the node's first and last block, if it said so.
    pub fn shortfall(&self, flags: &ConsumerFlags, stored: Option<(u64, u64)>) -> Option<String> {
        let is_done = match flags.end {
            Some(end) => self.last == Some(end),
            None => self.is_ended || self.code == Some(SubscribeCode::Success),
        };
        if self.wrong.is_some() || is_done {
            return self.wrong.clone();
        }
        if let (true, Some(end)) = (self.is_ended, flags.end) {
            return Some(format!("a signal ended it before block {end} came"));
        }
        let stored = match stored {
            Some((_, NO_BLOCK)) => "; the node has no block yet".to_owned(),
            Some((first, last)) => format!("; the node has blocks {first} to {last}"),
            None => String::new(),
        };
        let remedy = match self.code {
            Some(SubscribeCode::Success) => ": it stopped before the last block came",
            Some(SubscribeCode::InvalidEnd) => ": --end must not be before --start",
            Some(SubscribeCode::InvalidRequest) => {
                ": --only-items and --without-items must name what hashes can stand for"
            }
            Some(SubscribeCode::NotAvailable) => ": --start must be one of its blocks, or one that is soon to come",
            Some(SubscribeCode::InvalidStart) => ": --start must be one of its blocks",
            Some(SubscribeCode::Error) | None => ": its log says why",
        };
        Some(format!("the stream ended with {}{stored}{remedy}", self.status_by_name()))
    }

    fn status_by_name(&self) -> String {
        match (self.code, self.status) {
            _ if self.is_ended => "ended by a signal".to_owned(),
            (Some(code), _) => code.to_string(),
            (None, 0) => "no status".to_owned(),
            (None, unknown) => format!("status {unknown}, which is not known"),
        }
    }
}

impl fmt::Display for Read {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64().max(f64::MIN_POSITIVE);
        write!(
            formatter,
            "{} blocks read and verified in {seconds:.2} s: {:.0} blocks/s, {:.1} MB/s; {}",
            self.blocks,
            self.blocks as f64 / seconds,
            self.bytes as f64 / seconds / 1e6,
            self.status_by_name()
        )
    }
}

/// Subscribes and reads to the end; `seen` is given every block.
pub async fn read(flags: &ConsumerFlags, seen: impl FnMut(&Verified)) -> Result<Read, GrpcError> {
    read_until(flags, seen, |_| (), pending()).await
}

/// The same, to the end that is asked for at the latest, which is looked for once the stream is there; `waiting` is told what it waits for
/// when nothing has come for a while.
pub(super) async fn read_until(
    flags: &ConsumerFlags,
    mut seen: impl FnMut(&Verified),
    waiting: impl Fn(&str),
    end: impl Future<Output = ()>,
) -> Result<Read, GrpcError> {
    use proto::subscribe_stream_response::Response;
    let mut channel = connect_with(&flags.address, &flags.tls).await?;
    let call = channel.call(SUBSCRIBE);
    let request = proto::SubscribeStreamRequest {
        start_block_number: flags.start.unwrap_or(NO_BLOCK),
        end_block_number: flags.end.unwrap_or(NO_BLOCK),
        filter: flags.filter(),
    };
    let (mut sender, mut receiver) = channel.stream(&call, &request).await?;
    sender.finish()?;
    let began = Instant::now();
    let mut result = Read::default();
    let mut block = Vec::new();
    let mut before: Option<Verified> = None;
    let mut end = pin!(end);
    loop {
        let awaited = async {
            if let Ok(next) = timeout(PATIENCE, receiver.next()).await {
                return next;
            }
            let next = result.last.map(|last| last + 1).or(flags.start);
            let next = next.map_or_else(|| "the next block".to_owned(), |next| format!("block {next}"));
            waiting(&format!("{} read; waiting for {next}", result.blocks));
            receiver.next().await
        };
        let next = tokio::select! {
            next = awaited => next?,
            () = &mut end => {
                result.is_ended = true;
                break;
            }
        };
        let Some(proto::SubscribeStreamResponse { response }) = next else { break };
        let whole = match response.ok_or_else(|| GrpcError::Decode("a SubscribeStreamResponse says nothing".into()))? {
            Response::BlockItems(set) => {
                let is_whole = !flags.wire_era.has_end_of_block() && ends_with_proof(&set);
                block.extend_from_slice(&set);
                is_whole.then_some(None)
            }
            Response::EndOfBlock(end) => Some(Some(end.block_number)),
            Response::Status(status) => {
                result.status = status;
                result.code = SubscribeCode::of(status, flags.wire_era);
                None
            }
        };
        let Some(number) = whole else { continue };
        match check(&std::mem::take(&mut block), number, before.as_ref(), request.filter.is_some()) {
            Ok(verified) => {
                seen(&verified);
                result.blocks += 1;
                result.bytes += verified.bytes.len() as u64;
                result.last = Some(verified.number);
                before = Some(verified);
            }
            Err(wrong) => {
                result.wrong.get_or_insert(wrong);
            }
        }
        if flags.slow_millis > 0 {
            tokio::time::sleep(Duration::from_millis(flags.slow_millis)).await;
        }
    }
    if !block.is_empty() && !result.is_ended {
        result.wrong.get_or_insert_with(|| "the stream ended within a block".into());
    }
    result.took = began.elapsed();
    Ok(result)
}

/// Verifies a block, and that it continues the one before; its end names its number, if there is one.
fn check(block: &[u8], ended: Option<u64>, before: Option<&Verified>, is_filtered: bool) -> Result<Verified, String> {
    let rules = ProofRules::accepted_before();
    let expected = ended.or(before.map(|before| before.number + 1));
    let wrong = |error: &dyn fmt::Display| match expected {
        Some(number) => format!("block {number}: {error}"),
        None => format!("the first block: {error}"),
    };
    let limits = Limits { block_bytes_max: usize::MAX };
    let verify = if is_filtered { Verified::of_filtered } else { Verified::of };
    let verified = verify(block, limits, &rules).map_err(|error| wrong(&error))?;
    let number = verified.number;
    if ended.is_some_and(|ended| ended != number) {
        return Err(wrong(&format!("its header says {}", verified.number)));
    }
    match before {
        Some(before) if before.number + 1 != number => Err(wrong(&format!("it comes behind block {}", before.number))),
        Some(before) if before.root != verified.footer.previous_root => Err(wrong(&"it continues another block")),
        _ => Ok(verified),
    }
}
