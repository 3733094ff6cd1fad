//! `block-node simulate`: a publisher of crafted blocks and a consumer that verifies what it reads. Tests use the same.

mod consumer;
mod publisher;

pub use consumer::{ConsumerFlags, Read, read};
pub use publisher::{Fault, Published, PublisherFlags, publish, request};

use std::error::Error;
use std::time::Duration;

pub use crate::messages::{PUBLISH, STATUS, SUBSCRIBE};

use service_kit::client::{Channel, GrpcError, Options};

/// How long a node may take to answer a unary call.
const LIMIT: Duration = Duration::from_secs(30);

/// Connects to `HOST:PORT`.
pub async fn connect(address: &str) -> Result<Channel, GrpcError> {
    Channel::connect(address, Options::new(LIMIT)).await
}

fn block_on<T>(work: impl Future<Output = Result<T, GrpcError>>) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work)?)
}

/// Publishes, and prints how that went.
pub fn publisher(flags: &PublisherFlags) -> Result<(), Box<dyn Error>> {
    let published = block_on(publish(flags))?;
    println!("{published}");
    Ok(())
}

/// Reads and verifies, and prints how that went.
pub fn consumer(flags: &ConsumerFlags) -> Result<(), Box<dyn Error>> {
    let read = block_on(read(flags, |_| ()))?;
    println!("{read}");
    match read.wrong {
        None => Ok(()),
        Some(wrong) => Err(wrong.into()),
    }
}
