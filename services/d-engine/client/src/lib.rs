//! What one says to a d-engine: the same whether it is a server far away or an engine in this process.
//!
//! [`Client`] reads, writes and watches through a [`Door`]. [`Client::connect`] makes one of the addresses of servers: it finds
//! the leader, and speaks the streaming RPC of `proto/storebench/dengine/v1.proto`. `d_engine::Engine::client` makes one of an
//! engine in this process.
//!
//! Promises: an error says whether the write may have happened ([`Error::may_have_happened`]). A write is sent again only when
//! nothing has happened, or within a [`Session`], where sending it again does not do it again.
//!
//! ```no_run
//! # async fn example() -> Result<(), d_engine_client::Error> {
//! use d_engine_client::{Client, Operation, Options, Transaction};
//! use std::time::Duration;
//!
//! let members = ["127.0.0.1:9081".to_owned(), "127.0.0.1:9082".to_owned()];
//! let client = Client::connect(&members, Options::default()).await?;
//! let revision = client.put("greeting", "hello").await?;
//! assert_eq!(client.get("greeting").await?.map(|found| found.revision), Some(revision));
//!
//! // Done once, however often it must be sent.
//! let session = client.session().await?;
//! let add = Transaction::of(Operation::Add { key: "visits".into(), delta: 1 });
//! session.transact(add, Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `services/d-engine/examples/remote.rs` has more: a lock, a fenced write, a watch.
//!
//! [`proto`] has the messages of all dialects, [`grpc`] a small client for unary calls and streams.

mod client;
mod convert;
mod credentials;
mod door;
mod error;
pub mod grpc;
mod lease;
mod link;
mod lock;
mod pulse;
mod read;
mod remote;
mod session;
mod tls;
mod watch;
mod write;

use std::time::Duration;

use tokio::time::Instant;

/// The messages of all dialects, made by `build.rs` from the files in `../proto`. Fields of type `bytes` are [`bytes::Bytes`].
#[allow(missing_docs, clippy::all)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/proto.rs"));

    /// What describes them, for servers that are asked for it.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/d-engine.descriptors"));
}

/// The time after so long; of what is for ever, one that nobody lives to see.
pub(crate) fn deadline_in(patience: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(patience).unwrap_or_else(|| now + Duration::from_secs(100 * 365 * 24 * 3600))
}

pub use client::Client;
pub use credentials::Credentials;
pub use door::{BoxFuture, Door};
pub use error::{Error, Leader};
pub use lease::LeaseGuard;
pub use lock::Lock;
pub use proto::storebench::dengine::v1 as wire;
pub use read::{Answer, KeyValue, Page, Query, ReadLevel, ReadOptions, ReadPath, Scan, Seen, end_of_prefix};
pub use remote::Options;
pub use session::Session;
pub use tls::{Tls, TlsError};
pub use watch::{Batch, Event, EventKind, Watch, WatchOptions};
pub use write::{
    Applied, Compare, Condition, KEY_BYTES_MAX, Lease, Operation, OperationResult, Stamp, Transaction, Written,
};
