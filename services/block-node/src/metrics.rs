//! What is counted: from the first item to the acknowledgement, and what is read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use service_kit::metrics::{Process, gauge};
use wal::files::Directory;

use crate::messages::PublishResponse;
use crate::store::Reader;

/// Upper bounds of latencies, seconds.
const BOUNDS_SECONDS: [f64; 16] =
    [0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// A histogram of latencies.
#[derive(Clone, Debug)]
pub struct Latency(Histogram);

impl Latency {
    fn new() -> Self {
        Self(Histogram::new(BOUNDS_SECONDS))
    }

    /// Counts one.
    pub fn observe(&self, took: Duration) {
        self.0.observe(took.as_secs_f64());
    }
}

/// Tells at any time what is there and what is damaged: readers, repairs and removals change it.
struct Stored<D: Directory>(Reader<D>);

impl<D: Directory> fmt::Debug for Stored<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Stored").field(&self.0.quarantined()).finish()
    }
}

impl<D: Directory + Sync> Collector for Stored<D>
where
    D::File: Sync,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let first = self.0.last().map_or(-1, |_| self.0.first() as i64);
        gauge(&mut encoder, "block_node_first_block", "The first block that is here; -1: none", first)?;
        let help = "Blocks that are damaged on disk, as far as is known";
        gauge(&mut encoder, "block_node_quarantined_blocks", help, self.0.quarantined() as i64)
    }
}

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $field:ident: $kind:ident = $name:literal,)*) => {
        /// All metrics.
        pub struct Metrics {
            /// What is told of them.
            pub registry: Arc<Registry>,
            $($(#[doc = $help])+ pub $field: $kind,)*
        }

        impl Metrics {
            /// Of a node whose blocks these are.
            pub fn of<D: Directory + Sync>(blocks: Reader<D>) -> Self
            where
                D::File: Sync,
            {
                let mut registry = Registry::default();
                registry.register_collector(Box::new(Process));
                registry.register_collector(Box::new(Stored(blocks)));
                let own = registry.sub_registry_with_prefix("block_node");
                $(
                    let $field = metrics!(@new $kind);
                    own.register($name, concat!($($help),+).trim_start(), metrics!(@registered $kind $field));
                )*
                Self { registry: Arc::new(registry), $($field),* }
            }
        }
    };
    (@new Latency) => { Latency::new() };
    (@new Counter) => { Counter::default() };
    (@new Gauge) => { Gauge::default() };
    (@registered Latency $field:ident) => { $field.0.clone() };
    (@registered $kind:ident $field:ident) => { $field.clone() };
}

metrics! {
    /// From a block's header to its end: how long it took to come
    receive: Latency = "block_receive_seconds",
    /// From a block's end to its verified hash
    verify: Latency = "block_verify_seconds",
    /// Write and sync of a batch of blocks
    sync: Latency = "batch_sync_seconds",
    /// From a block's end to its acknowledgement: verified, compared with its predecessors, safe on disk
    acknowledge: Latency = "block_acknowledge_seconds",
    /// From the moment a block is safe to a subscriber's connection having taken it
    deliver: Latency = "block_deliver_seconds",
    /// Answering getBlock
    get_block: Latency = "get_block_seconds",
    /// Blocks that were stored
    blocks: Counter = "blocks_stored",
    /// Bytes of blocks that were stored, as they came
    plain_bytes: Counter = "blocks_stored_plain_bytes",
    /// Bytes of blocks that were stored, compressed
    stored_bytes: Counter = "blocks_stored_compressed_bytes",
    /// Blocks that were framed for subscribers: when they came, when they were read from disk, and compressed, once for all who take that
    framed: Counter = "blocks_framed",
    /// Blocks that were filtered for subscribers: each once for all who filter alike, but for large ones
    filtered: Counter = "blocks_filtered",
    /// Blocks that were sent to subscribers
    delivered: Counter = "blocks_delivered",
    /// Blocks that were read from disk
    read_from_disk: Counter = "blocks_read_from_disk",
    /// Blocks that getBlock has answered with
    get_block_hits: Counter = "get_block_hits",
    /// Requests of getBlock for what is not here
    get_block_refusals: Counter = "get_block_refusals",
    /// Acknowledgements that were sent
    acknowledgements: Counter = "acknowledgements",
    /// Blocks that publishers were told to skip
    skips: Counter = "skips",
    /// Blocks that publishers were asked for again
    resends: Counter = "resends",
    /// Publishers that were told that this node is behind
    behinds: Counter = "behinds",
    /// Streams of publishers that were ended
    ends: Counter = "ends_of_stream",
    /// Publishers that were paused since they have used up their budget of messages time and again
    pauses: Counter = "publisher_pauses",
    /// Blocks that came from a peer, whole
    backfilled: Counter = "blocks_backfilled",
    /// Damaged blocks that were fetched from a peer and are whole again
    repaired: Counter = "blocks_repaired",
    /// Peers that failed, stalled or sent what was refused
    backfill_failures: Counter = "backfill_failures",
    /// Blocks that were read through to look for damage
    scrubbed: Counter = "blocks_scrubbed",
    /// Blocks that this has found damaged, or could not read
    scrub_damaged: Counter = "scrub_damaged_blocks",
    /// When all blocks had been read through last, seconds since 1970; 0: not since the start
    scrub_last_pass_seconds: Gauge = "scrub_last_pass_timestamp_seconds",
    /// Publishers at the moment
    publishers: Gauge = "publishers",
    /// Subscribers at the moment
    subscribers: Gauge = "subscribers",
    /// Bytes of blocks under way, from the first item to the sync
    held_bytes: Gauge = "publish_held_bytes",
    /// Bytes of blocks in memory for readers
    cached_bytes: Gauge = "cached_bytes",
    /// Bytes of large blocks that are being sent to subscribers
    lent_bytes: Gauge = "lent_bytes",
    /// The last block that is safe; -1: none
    last_block: Gauge = "last_block",
    /// 1: blocks are taken
    accepting: Gauge = "accepting",
}

impl Metrics {
    /// Counts what a publisher is told.
    pub fn told(&self, response: &PublishResponse) {
        let counter = match response {
            PublishResponse::Acknowledgement(_) => &self.acknowledgements,
            PublishResponse::Skip(_) => &self.skips,
            PublishResponse::Resend(_) => &self.resends,
            PublishResponse::Behind(_) => &self.behinds,
            PublishResponse::EndOfStream { .. } => &self.ends,
        };
        counter.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Options, Store};
    use service_kit::metrics::Format;
    use wal::files::SimulatedDirectory;

    #[test]
    fn what_was_counted_is_told_with_its_unit() {
        let metrics = Metrics::of(Store::open(SimulatedDirectory::default(), Options::default()).unwrap().reader());
        metrics.told(&PublishResponse::Skip(1));
        metrics.sync.observe(Duration::from_millis(3));
        let text = Format::OpenMetrics.write(&metrics.registry).unwrap();
        assert!(text.contains("\nblock_node_skips_total 1\n"), "{text}");
        assert!(text.contains("block_node_batch_sync_seconds_bucket{le=\"0.005\"} 1\n"), "{text}");
        assert!(text.contains("\nblock_node_quarantined_blocks 0\n"), "{text}");
        assert!(text.contains("# HELP block_node_batch_sync_seconds Write and sync of a batch of blocks.\n"), "{text}");
    }
}
