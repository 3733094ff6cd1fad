//! Asks a block node for answers, each once.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use service_kit::client::{Channel, Options, StreamReceiver, StreamSender};
use tokio::time::timeout;

use super::messages::{
    BlockRequest, BlockResponse, Delivered, DetailResponse, EndStream, NO_BLOCK, PublishRequest, PublishResponse,
    Published, StatusRequest, StatusResponse, SubscribeRequest, SubscribeResponse, Version, Versions, Wanted,
    answer_of_get_block, code, end_of_subscription, path,
};
use storebench_crds::meter::Check;

use crate::failure::Failure;
use crate::family::check::{ANSWER_TIMEOUT, tried};

/// For all that is tried out together.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// What is tried out, in this order.
const SURFACE: [&str; 5] =
    ["serverStatus", "serverStatusDetail", "getBlock", "subscribeBlockStream", "publishBlockStream"];
/// A block that nobody has.
const NOBODYS: u64 = NO_BLOCK - 1;

/// `serverStatus`.
pub(crate) fn answers(address: SocketAddr) -> Result<(), Failure> {
    within(ANSWER_TIMEOUT, async { status(&mut connect(address, ANSWER_TIMEOUT).await?).await.map(drop) })
}

/// The version that `serverStatusDetail` tells.
pub(crate) fn version(address: SocketAddr) -> Result<String, Failure> {
    within(ANSWER_TIMEOUT, async { detail(&mut connect(address, ANSWER_TIMEOUT).await?).await })
}

/// Each method once, within 5 s, on blocks that nobody has; nothing is stored.
pub(crate) fn surface(address: SocketAddr) -> Vec<Check> {
    let mut checks = Vec::with_capacity(SURFACE.len());
    let outcome = within(TIME_LIMIT, async {
        let mut channel = connect(address, TIME_LIMIT).await?;
        checks.push(tried(SURFACE[0], status(&mut channel).await));
        checks.push(tried(SURFACE[1], detail(&mut channel).await));
        checks.push(tried(SURFACE[2], get_block(&mut channel).await));
        checks.push(tried(SURFACE[3], subscribe(&mut channel).await));
        checks.push(tried(SURFACE[4], publish(&mut channel).await));
        Ok(())
    });
    let why_not = outcome.err().unwrap_or_else(|| Failure::new("not tried"));
    let not_tried = SURFACE.iter().skip(checks.len()).map(|name| tried(name, Err(why_not.clone())));
    checks.extend(not_tried.collect::<Vec<_>>());
    checks
}

fn within<T>(limit: Duration, asked: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("start", &error))?;
    let answered = runtime.block_on(async { timeout(limit, asked).await });
    answered.unwrap_or_else(|_| Err(Failure::new(format_args!("no answer within {limit:?}"))))
}

async fn connect(address: SocketAddr, limit: Duration) -> Result<Channel, Failure> {
    Channel::connect(&address.to_string(), Options::new(limit)).await.map_err(Failure::new)
}

async fn status(channel: &mut Channel) -> Result<String, Failure> {
    let call = channel.call(path::STATUS);
    let answer: StatusResponse = channel.unary(&call, &StatusRequest {}).await.map_err(Failure::new)?;
    Ok(match answer.last {
        NO_BLOCK => "no block".into(),
        last => format!("blocks {} to {last}", answer.first),
    })
}

async fn detail(channel: &mut Channel) -> Result<String, Failure> {
    let call = channel.call(path::DETAIL);
    let answer: DetailResponse = channel.unary(&call, &StatusRequest {}).await.map_err(Failure::new)?;
    let version = answer.versions.and_then(|Versions { block_node }| block_node);
    let Version { major, minor, patch } = version.ok_or_else(|| Failure::new("the answer has no version"))?;
    Ok(format!("{major}.{minor}.{patch}"))
}

async fn get_block(channel: &mut Channel) -> Result<String, Failure> {
    let call = channel.call(path::GET_BLOCK);
    let request = BlockRequest { wanted: Some(Wanted::Number(NOBODYS)) };
    let answer: BlockResponse = channel.unary(&call, &request).await.map_err(Failure::new)?;
    match answer.code {
        code::NOT_AVAILABLE => Ok("NOT_AVAILABLE, as it must".into()),
        other => {
            Err(Failure::new(format_args!("{} ({other}) for a block that nobody has", answer_of_get_block(other))))
        }
    }
}

async fn subscribe(channel: &mut Channel) -> Result<String, Failure> {
    let call = channel.call(path::SUBSCRIBE);
    let request = SubscribeRequest { first: NOBODYS, last: NOBODYS };
    let (mut sender, mut receiver): (StreamSender<_>, StreamReceiver<SubscribeResponse>) =
        channel.stream(&call, &request).await.map_err(Failure::new)?;
    sender.finish().map_err(Failure::new)?;
    match receiver.next().await.map_err(Failure::new)? {
        Some(SubscribeResponse { response: Some(Delivered::Status(status)) }) if status > code::SUCCESS => {
            Ok(format!("{}, as it must", end_of_subscription(status)))
        }
        _ => Err(Failure::new("a block that nobody has was not refused")),
    }
}

async fn publish(channel: &mut Channel) -> Result<String, Failure> {
    let call = channel.call(path::PUBLISH);
    let goodbye = PublishRequest { request: Some(Published::EndStream(EndStream { code: code::RESET })) };
    let (mut sender, mut receiver): (StreamSender<_>, StreamReceiver<PublishResponse>) =
        channel.stream(&call, &goodbye).await.map_err(Failure::new)?;
    sender.finish().map_err(Failure::new)?;
    while receiver.next().await.map_err(Failure::new)?.is_some() {}
    Ok("a publisher that ends at once is let go".into())
}
