//! One client on one connection to a block node.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use service_kit::client::{Call, Channel, StreamReceiver, StreamSender};

use super::messages::{
    BlockRequest, BlockResponse, Delivered, PublishRequest, PublishResponse, StatusRequest, StatusResponse,
    SubscribeRequest, SubscribeResponse, Wanted, answer_of_get_block, code, end_of_subscription, path,
};
use crate::failure::Failure;
use crate::net::grpc::connect;

/// One client on one connection. Cloning gives another on the same.
#[derive(Clone, Debug)]
pub(super) struct Client {
    channel: Channel,
    endpoint: Rc<str>,
    publish: Call,
    subscribe: Call,
    get_block: Call,
    status: Call,
}

impl Client {
    /// Connects to `endpoint`, `host:port`, patiently.
    pub(super) async fn open(endpoint: &str, timeout: Duration) -> Result<Self, Failure> {
        let channel = connect(endpoint, timeout).await?;
        Ok(Self {
            publish: channel.call(path::PUBLISH),
            subscribe: channel.call(path::SUBSCRIBE),
            get_block: channel.call(path::GET_BLOCK),
            status: channel.call(path::STATUS),
            endpoint: endpoint.into(),
            channel,
        })
    }

    /// Which blocks there are; `None`: none is.
    pub(super) async fn status(&mut self) -> Result<Option<RangeInclusive<u64>>, Failure> {
        let answer = self.channel.unary(&self.status, &StatusRequest {}).await;
        let StatusResponse { first, last } = answer.map_err(|error| self.failure("serverStatus", &error))?;
        Ok((last != super::messages::NO_BLOCK).then_some(first..=last))
    }

    /// A block; `None`: it is not there.
    pub(super) async fn get_block(&mut self, number: u64) -> Result<Option<Bytes>, Failure> {
        let request = BlockRequest { wanted: Some(Wanted::Number(number)) };
        let answer = self.channel.unary(&self.get_block, &request).await;
        let answer: BlockResponse = answer.map_err(|error| self.failure("getBlock", &error))?;
        match answer {
            BlockResponse { code: code::SUCCESS, block: Some(block) } => Ok(Some(block)),
            BlockResponse { code: code::NOT_AVAILABLE, block: None } => Ok(None),
            BlockResponse { code, block } => {
                let with = if block.is_some() { "with" } else { "without" };
                let text = format!("{} ({code}) {with} a block, for block {number}", answer_of_get_block(code));
                Err(self.failure("getBlock", &text))
            }
        }
    }

    /// Begins to receive blocks; those after `last` are not sent.
    pub(super) async fn subscribe(&mut self, first: u64, last: u64) -> Result<Subscription, Failure> {
        let opened = self.channel.stream(&self.subscribe, &SubscribeRequest { first, last }).await;
        let (mut sender, receiver) = opened.map_err(|error| self.failure("subscribeBlockStream", &error))?;
        sender.finish().map_err(|error| self.failure("subscribeBlockStream", &error))?;
        Ok(Subscription { _sender: sender, receiver, begun: Bytes::new(), endpoint: Rc::clone(&self.endpoint) })
    }

    /// Begins to publish.
    pub(super) async fn publish(
        &mut self,
        first: &PublishRequest,
    ) -> Result<(StreamSender<PublishRequest>, StreamReceiver<PublishResponse>), Failure> {
        let opened = self.channel.stream(&self.publish, first).await;
        opened.map_err(|error| self.failure("publishBlockStream", &error))
    }

    /// A request that failed.
    pub(super) fn failure(&self, request: &str, error: &dyn Display) -> Failure {
        failure(request, &self.endpoint, error)
    }
}

fn failure(request: &str, endpoint: &str, error: &dyn Display) -> Failure {
    Failure::new(format_args!("{request} at {endpoint}: {error}"))
}

/// Blocks as they come.
#[derive(Debug)]
pub(super) struct Subscription {
    /// Dropped, it would end the stream.
    _sender: StreamSender<SubscribeRequest>,
    receiver: StreamReceiver<SubscribeResponse>,
    /// What has come of the next block.
    begun: Bytes,
    endpoint: Rc<str>,
}

impl Subscription {
    /// The next block: the number that ends it, and its bytes. `None`: the node has sent all. Nothing is lost when the returned future
    /// is dropped before it is done. Errors: the node ended the stream otherwise.
    pub(super) async fn next(&mut self) -> Result<Option<(u64, Bytes)>, Failure> {
        let failed = |error: &dyn Display| failure("subscribeBlockStream", &self.endpoint, error);
        loop {
            let message = self.receiver.next().await.map_err(|error| failed(&error))?;
            let Some(SubscribeResponse { response }) = message else {
                return Err(failed(&"the node ended the stream without a status"));
            };
            match response {
                Some(Delivered::Items(items)) if self.begun.is_empty() => self.begun = items,
                Some(Delivered::Items(items)) => {
                    let mut both = BytesMut::from(std::mem::take(&mut self.begun));
                    both.extend_from_slice(&items);
                    self.begun = both.freeze();
                }
                Some(Delivered::EndOfBlock(end)) => return Ok(Some((end.number, std::mem::take(&mut self.begun)))),
                Some(Delivered::Status(code::SUCCESS)) if self.begun.is_empty() => return Ok(None),
                Some(Delivered::Status(code)) => {
                    let within = if self.begun.is_empty() { "" } else { " within a block" };
                    let text = format!("the node ended the stream{within}: {} ({code})", end_of_subscription(code));
                    return Err(failed(&text));
                }
                None => return Err(failed(&"a message says nothing")),
            }
        }
    }
}
