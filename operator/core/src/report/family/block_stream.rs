//! Load on a block node, in words.

use storebench_crds::workload::KeyOrder;
use storebench_crds::workload::block_stream::{BlockStreamOperation, BlockStreamWorkload, HashRules, SubscribeFrom};

use super::super::lookup::api_word;
use super::super::units;

/// The request and its parameters, in parts.
pub(super) fn request(block_stream: &BlockStreamWorkload) -> Vec<String> {
    use BlockStreamOperation::{GetBlock, Mixed, Publish, Subscribe};
    let operation = block_stream.operation;
    let mut parts = vec![format!("block stream {}", api_word(&operation))];
    let is_live = operation == Subscribe && block_stream.from() == SubscribeFrom::Live;
    if operation == Subscribe {
        parts.push(if is_live { "from live".to_owned() } else { "from history".to_owned() });
    }
    let items =
        block_stream.items_per_block.map_or_else(String::new, |items| format!(" of {}", units::things(items, "item")));
    parts.push(format!("{} blocks{items}", units::bytes(block_stream.block_bytes.into())));
    if operation == Publish || operation == Mixed || is_live {
        parts.push(format!("{} in flight", block_stream.window()));
    }
    if let Some(rate) = block_stream.publish_rate {
        parts.push(format!("{}/s published beside", units::count(rate.into())));
    }
    if block_stream.history_blocks() > 0 {
        parts.push(format!("{} there before", units::things(block_stream.history_blocks(), "block")));
    }
    if matches!(operation, GetBlock | Mixed) && block_stream.block_order == KeyOrder::Sequential {
        parts.push("in sequence".to_owned());
    }
    if let Some(percent) = block_stream.refusal_percent {
        parts.push(format!("{percent} % of blocks that are not there"));
    }
    if block_stream.hash_rules == HashRules::Legacy {
        parts.push("legacy hashes".to_owned());
    }
    parts
}
