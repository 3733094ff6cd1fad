//! What is spoken to a block node: the messages of `org.hiero.block.api` that the loader uses, as of block node 0.25 and later.
//!
//! Blocks and sets of items are bytes here: on the wire a message and a string of bytes look the same.

use bytes::Bytes;
use prost::{Message, Oneof};

/// Stands for "none", "from the first" and "without an end".
pub const NO_BLOCK: u64 = u64::MAX;

/// Paths of methods.
pub mod path {
    pub const PUBLISH: &str = "/org.hiero.block.api.BlockStreamPublishService/publishBlockStream";
    pub const SUBSCRIBE: &str = "/org.hiero.block.api.BlockStreamSubscribeService/subscribeBlockStream";
    pub const GET_BLOCK: &str = "/org.hiero.block.api.BlockAccessService/getBlock";
    pub const STATUS: &str = "/org.hiero.block.api.BlockNodeService/serverStatus";
    pub const DETAIL: &str = "/org.hiero.block.api.BlockNodeService/serverStatusDetail";
}

/// Codes of answers. A service's own success is always 1.
pub mod code {
    pub const SUCCESS: i32 = 1;
    /// Of a publisher: the block is there, and was for a while.
    pub const DUPLICATE_BLOCK: i32 = 5;
    /// Of getBlock.
    pub const NOT_AVAILABLE: i32 = 5;
    /// Of a publisher that ends: it will be back.
    pub const RESET: i32 = 1;
}

/// What the end of a publisher's stream is called.
pub fn end_of_publishing(code: i32) -> &'static str {
    let names = [
        "UNKNOWN",
        "SUCCESS",
        "INVALID_REQUEST",
        "ERROR",
        "TIMEOUT",
        "DUPLICATE_BLOCK",
        "BAD_BLOCK_PROOF",
        "PERSISTENCE_FAILED",
    ];
    named(&names, code)
}

/// What the end of a subscription is called.
pub fn end_of_subscription(code: i32) -> &'static str {
    let names = [
        "UNKNOWN",
        "SUCCESS",
        "INVALID_REQUEST",
        "ERROR",
        "INVALID_START_BLOCK_NUMBER",
        "INVALID_END_BLOCK_NUMBER",
        "NOT_AVAILABLE",
    ];
    named(&names, code)
}

/// What an answer of getBlock is called.
pub fn answer_of_get_block(code: i32) -> &'static str {
    named(&["UNKNOWN", "SUCCESS", "INVALID_REQUEST", "ERROR", "NOT_FOUND", "NOT_AVAILABLE"], code)
}

fn named(names: &[&'static str], code: i32) -> &'static str {
    usize::try_from(code).ok().and_then(|code| names.get(code)).copied().unwrap_or("a code that is not known")
}

#[derive(Clone, PartialEq, Message)]
pub struct BlockNumber {
    #[prost(uint64, tag = "1")]
    pub number: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct EndStream {
    #[prost(int32, tag = "1")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct PublishRequest {
    #[prost(oneof = "Published", tags = "1, 2, 3")]
    pub request: Option<Published>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Published {
    #[prost(bytes = "bytes", tag = "1")]
    Items(Bytes),
    #[prost(message, tag = "2")]
    EndStream(EndStream),
    #[prost(message, tag = "3")]
    EndOfBlock(BlockNumber),
}

#[derive(Clone, PartialEq, Message)]
pub struct EndOfStream {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(uint64, tag = "2")]
    pub last: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct PublishResponse {
    #[prost(oneof = "Told", tags = "1, 2, 3, 4, 5")]
    pub response: Option<Told>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Told {
    #[prost(message, tag = "1")]
    Acknowledgement(BlockNumber),
    #[prost(message, tag = "2")]
    EndOfStream(EndOfStream),
    #[prost(message, tag = "3")]
    Skip(BlockNumber),
    #[prost(message, tag = "4")]
    Resend(BlockNumber),
    /// The last block that the node has.
    #[prost(message, tag = "5")]
    Behind(BlockNumber),
}

#[derive(Clone, PartialEq, Message)]
pub struct SubscribeRequest {
    #[prost(uint64, tag = "1")]
    pub first: u64,
    #[prost(uint64, tag = "2")]
    pub last: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct SubscribeResponse {
    #[prost(oneof = "Delivered", tags = "1, 2, 3")]
    pub response: Option<Delivered>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Delivered {
    #[prost(int32, tag = "1")]
    Status(i32),
    #[prost(bytes = "bytes", tag = "2")]
    Items(Bytes),
    #[prost(message, tag = "3")]
    EndOfBlock(BlockNumber),
}

#[derive(Clone, PartialEq, Message)]
pub struct BlockRequest {
    #[prost(oneof = "Wanted", tags = "1, 2")]
    pub wanted: Option<Wanted>,
}

/// Unlike a field, block 0 of a `oneof` is written.
#[derive(Clone, PartialEq, Oneof)]
pub enum Wanted {
    #[prost(uint64, tag = "1")]
    Number(u64),
    #[prost(bool, tag = "2")]
    Latest(bool),
}

#[derive(Clone, PartialEq, Message)]
pub struct BlockResponse {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub block: Option<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct StatusRequest {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct StatusResponse {
    #[prost(uint64, tag = "1")]
    pub first: u64,
    #[prost(uint64, tag = "2")]
    pub last: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Version {
    #[prost(uint32, tag = "1")]
    pub major: u32,
    #[prost(uint32, tag = "2")]
    pub minor: u32,
    #[prost(uint32, tag = "3")]
    pub patch: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Versions {
    #[prost(message, optional, tag = "2")]
    pub block_node: Option<Version>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct DetailResponse {
    #[prost(message, optional, tag = "1")]
    pub versions: Option<Versions>,
}
