//! The block stream family: blocks in, blocks out, every one that is read compared with what was published, its root hash computed here.
//!
//! From the outside in: [`run`] makes a [`Plan`]; one thread has a [`BlockStream`] with its connections and its [`chain`], which knows
//! every block of the store. A block names the one before it, so there is one chain, one thread and one load process. Blocks that were
//! there before the workload (of an earlier one, or of an earlier trial where the store is shared) are read and made again first.
//!
//! [`block`] makes and reads blocks by the rules in [`hash`], which share no code with any store; [`client`] and [`messages`] are what is
//! spoken. What publishers do is in [`publish`], subscribers in [`subscribe`], readers in [`read`].

mod block;
mod chain;
mod client;
mod hash;
mod messages;
pub(crate) mod probe;
mod publish;
mod read;
mod subscribe;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use futures::future::try_join3;
use storebench_crds::job::Phase;
use storebench_crds::workload::block_stream::{
    BlockStreamOperation, BlockStreamWorkload, STORED_BLOCKS, SubscribeFrom,
};

use crate::failure::Failure;
use crate::load::session::Session;
use crate::load::{self, Context, Ending, Family, Seat, Surroundings};

use chain::Chain;
use client::Client;
use publish::{Counts, Pace, Publishing};

/// Runs one workload of the family. Errors are the loader's own; everything about the store is in the [`Ending`].
pub fn run(context: Context, parameters: &BlockStreamWorkload, around: &Surroundings<'_>) -> io::Result<Ending> {
    load::run::<BlockStream>(context, Plan { parameters: parameters.clone() }, around)
}

/// What a workload asks for.
#[derive(Debug)]
pub struct Plan {
    parameters: BlockStreamWorkload,
}

/// The connections, and what is known of the store's blocks.
#[derive(Debug)]
pub struct BlockStream {
    plan: Arc<Plan>,
    seat: Rc<Seat>,
    /// By index into the seat's connections.
    clients: Vec<Client>,
    /// Publishes beside those who are measured.
    beside: Option<Client>,
    chain: RefCell<Chain>,
    /// The first block of this workload's own.
    own_from: Cell<u64>,
    /// Of the phase that is under way: which, its first block, and the blocks on their way.
    publishing: RefCell<Option<(Phase, u64, Rc<Publishing>)>>,
}

/// What a block is called in a report.
fn name(number: u64) -> String {
    format!("block {number}")
}

impl BlockStream {
    fn client(&self, session: &Session) -> Client {
        self.clients[session.connection() as usize].clone()
    }

    /// The next block of the chain, which must be this one.
    fn make_block(&self, number: u64) -> Result<Vec<u8>, Failure> {
        let mut chain = self.chain.borrow_mut();
        if chain.next() != number {
            return Err(Failure::new(format_args!("block {number} was made twice")));
        }
        let BlockStreamWorkload { block_bytes, items_per_block, hash_rules, .. } = self.plan.parameters;
        Ok(chain.make(self.seat.context.seed, block_bytes, items_per_block, hash_rules).bytes)
    }

    /// What the publishers of a phase share, and its first block: made by the client that comes first.
    fn publishing(&self, session: &Session) -> (u64, Rc<Publishing>) {
        let mut current = self.publishing.borrow_mut();
        if let Some((phase, first, publishing)) = &*current
            && *phase == session.phase()
        {
            return (*first, Rc::clone(publishing));
        }
        let (pace, counts, subscribers) = match self.plan.parameters.operation {
            BlockStreamOperation::Publish => (Pace::Load, Counts::Operation, 0),
            BlockStreamOperation::Subscribe => (Pace::Load, Counts::Acknowledgement, self.seat.clients.len()),
            BlockStreamOperation::GetBlock | BlockStreamOperation::ServerStatus | BlockStreamOperation::Mixed => {
                let rate = self.plan.parameters.publish_rate.unwrap_or(1);
                (Pace::EverySecond(rate), Counts::Acknowledgement, 0)
            }
        };
        let first = self.chain.borrow().next();
        let publishing = Rc::new(Publishing::new(pace, counts, first, subscribers));
        *current = Some((session.phase(), first, Rc::clone(&publishing)));
        (first, publishing)
    }

    /// Makes blocks and publishes them on the connection besides.
    async fn publish_beside(&self, publishing: &Publishing, session: &Session) -> Result<(), Failure> {
        let mut beside = self.beside.clone().unwrap_or_else(|| self.client(session));
        futures::future::try_join(publishing.make(self, session), publishing.publish(&mut beside, session)).await?;
        Ok(())
    }

    /// Reads what the store has, and makes it again.
    async fn learn(&self, client: &mut Client, session: &Session) -> Result<(), Failure> {
        let mut batch = session.begin(1);
        let status = client.status().await?;
        session.answered_uncounted(&mut batch, 1);
        let Some(stored) = status else { return Ok(()) };
        if *stored.start() != 0 {
            let first = stored.start();
            let text =
                format_args!("serverStatus: the first block is {first}; the load needs a store that begins with 0");
            return Err(Failure::new(text));
        }
        self.read_range(client, 0..stored.end() + 1, session, |number, found, block| {
            let learned = match found == number {
                true => self.chain.borrow_mut().learn(block),
                false => Err(format!("block {found} came in its place")),
            };
            match learned {
                Ok(()) => {
                    session.verified(1);
                    Ok(())
                }
                Err(detail) => {
                    session.wrong(name(number), format!("was there before this workload, and {detail}"));
                    Err(Failure::new(format_args!("block {number} is wrong: {detail}")))
                }
            }
        })
        .await
    }
}

impl Family for BlockStream {
    type Plan = Plan;

    async fn connect(plan: Arc<Plan>, seat: Rc<Seat>) -> Result<Self, Failure> {
        let mut clients = Vec::with_capacity(seat.connections.len());
        for &number in &seat.connections {
            clients.push(Client::open(seat.endpoint(number), seat.context.timeout).await?);
        }
        let parameters = &plan.parameters;
        let publishes_beside = match parameters.operation {
            BlockStreamOperation::Mixed => true,
            BlockStreamOperation::Subscribe => parameters.from() == SubscribeFrom::Live,
            BlockStreamOperation::Publish | BlockStreamOperation::GetBlock | BlockStreamOperation::ServerStatus => {
                false
            }
        };
        let beside = match publishes_beside {
            true => Some(Client::open(seat.endpoint(0), seat.context.timeout).await?),
            false => None,
        };
        Ok(Self {
            plan,
            seat,
            clients,
            beside,
            chain: RefCell::default(),
            own_from: Cell::new(0),
            publishing: RefCell::default(),
        })
    }

    async fn prepare(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        if session.place() != 0 {
            return Ok(());
        }
        let mut client = self.client(&session);
        self.learn(&mut client, &session).await?;
        let next = self.chain.borrow().next();
        self.own_from.set(next);
        let wanted = u64::from(self.plan.parameters.history_blocks());
        if wanted > next {
            let publishing = Publishing::new(Pace::UntilThereAre(wanted), Counts::Nothing, next, 0);
            self.publish_beside(&publishing, &session).await?;
        }
        Ok(())
    }

    async fn load(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        let mut client = self.client(&session);
        let is_first = session.place() == 0;
        match self.plan.parameters.operation {
            BlockStreamOperation::Publish => {
                let (_, publishing) = self.publishing(&session);
                let publish = publishing.publish(&mut client, &session);
                match is_first {
                    true => futures::future::try_join(publishing.make(&self, &session), publish).await.map(drop),
                    false => publish.await,
                }
            }
            BlockStreamOperation::Subscribe if self.plan.parameters.from() == SubscribeFrom::Live => {
                let (first, publishing) = self.publishing(&session);
                let follow = self.follow(&publishing, first, &mut client, &session);
                match is_first {
                    true => {
                        futures::future::try_join(self.publish_beside(&publishing, &session), follow).await.map(drop)
                    }
                    false => follow.await,
                }
            }
            BlockStreamOperation::Subscribe => self.read_history(&mut client, &session).await,
            BlockStreamOperation::GetBlock => {
                let stored = self.chain.borrow().next();
                self.read_blocks(&mut client, &session, || stored).await
            }
            BlockStreamOperation::ServerStatus => self.ask_status(&mut client, &session).await,
            BlockStreamOperation::Mixed => {
                let (_, publishing) = self.publishing(&session);
                let read = async {
                    let result = self.read_blocks(&mut client, &session, || publishing.acknowledged()).await;
                    if is_first {
                        publishing.end();
                    }
                    result
                };
                match is_first {
                    true => {
                        let nothing = std::future::ready(Ok(()));
                        try_join3(self.publish_beside(&publishing, &session), read, nothing).await.map(drop)
                    }
                    false => read.await,
                }
            }
        }
    }

    async fn verify(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        if session.place() != 0 {
            return Ok(());
        }
        let mut client = self.client(&session);
        let next = self.chain.borrow().next();
        let mut batch = session.begin(1);
        let stored = client.status().await?;
        session.answered_uncounted(&mut batch, 1);
        let expected = next.checked_sub(1).map(|last| 0..=last);
        if stored != expected {
            let detail = format!("said {stored:?}, and blocks {expected:?} were acknowledged");
            session.wrong("serverStatus", detail);
            return Ok(());
        }
        session.largest(STORED_BLOCKS, next);
        self.read_range(&mut client, self.own_from.get()..next, &session, |number, found, block| {
            // What is wrong was told; the rest may be right.
            self.check_next(number, found, block, &session);
            Ok(())
        })
        .await
    }
}
