//! Load on the Redis protocol, in words.

use storebench_crds::workload::redis::{RedisProtocol, RedisWorkload};

use super::super::lookup::api_word;
use super::value_sizes;

/// The request and its parameters, in parts.
pub(super) fn request(redis: &RedisWorkload) -> Vec<String> {
    let mut parts = vec![format!("Redis {}", api_word(&redis.command))];
    if let Some(percent) = redis.read_percent {
        parts.push(format!("{percent} % reads"));
    }
    parts.push(value_sizes(redis.value_bytes, redis.key_space, redis.key_order));
    if redis.pipeline > 1 {
        parts.push(format!("pipelines of {}", redis.pipeline));
    }
    if redis.protocol == RedisProtocol::Resp3 {
        parts.push("RESP3".to_owned());
    }
    parts
}
