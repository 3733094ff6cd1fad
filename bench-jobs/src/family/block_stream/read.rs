//! Readers of single blocks, and who asks which there are.

use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use storebench_crds::workload::KeyOrder;
use storebench_crds::workload::block_stream::{BLOCK_BYTES, REFUSAL_LATENCY, REFUSALS};

use super::client::Client;
use super::{BlockStream, name};
use crate::content::seeds::mix;
use crate::failure::Failure;
use crate::load::session::Session;

/// A block that is asked for though it is not there is so far ahead of the last: it will not come before the answer.
const FAR_AHEAD: u64 = 1_000_000;

impl BlockStream {
    /// One reader's load: single blocks. `stored`: how many there are at the moment.
    pub(super) async fn read_blocks(
        &self,
        client: &mut Client,
        session: &Session,
        stored: impl Fn() -> u64,
    ) -> Result<(), Failure> {
        let parameters = &self.plan.parameters;
        let context = &self.seat.context;
        // The phase goes into the seed, or the measured phase would repeat the warm-up.
        let seed = mix(mix(context.seed, session.phase() as u64), u64::from(session.client()));
        let mut random = SmallRng::seed_from_u64(seed);
        let mut in_order = u64::from(session.client());
        let refused = parameters.refusal_percent.unwrap_or_default();
        while let Some(mut batch) = session.next().await {
            let stored = stored();
            if refused > 0 && random.random_range(0..100) < refused {
                let number = stored + FAR_AHEAD + random.random_range(0..FAR_AHEAD);
                let found = client.get_block(number).await?;
                session.took(REFUSAL_LATENCY, batch.sent().elapsed());
                session.count(REFUSALS, 1);
                session.answered_uncounted(&mut batch, 1);
                match found {
                    None => session.verified(1),
                    Some(_) => session.wrong(name(number), "was answered with, and was never published"),
                }
                continue;
            }
            let number = match parameters.block_order {
                KeyOrder::Random => random.random_range(0..stored),
                KeyOrder::Sequential => {
                    let number = in_order % stored;
                    in_order = number + u64::from(context.clients);
                    number
                }
            };
            let found = client.get_block(number).await?;
            session.answered(&mut batch, 1, Instant::now());
            let checked = match &found {
                Some(block) => {
                    session.count(BLOCK_BYTES, block.len() as u64);
                    self.chain
                        .borrow()
                        .check(number, block)
                        .map_err(|detail| format!("was answered with wrongly: {detail}"))
                }
                None => Err(format!("is not there, though {stored} blocks were acknowledged")),
            };
            match checked {
                Ok(()) => session.verified(1),
                Err(detail) => session.wrong(name(number), detail),
            }
        }
        Ok(())
    }

    /// One client's load: which blocks there are, while none is published.
    pub(super) async fn ask_status(&self, client: &mut Client, session: &Session) -> Result<(), Failure> {
        let last = self.chain.borrow().next().checked_sub(1);
        let expected = last.map(|last| 0..=last);
        while let Some(mut batch) = session.next().await {
            let found = client.status().await?;
            session.answered(&mut batch, 1, Instant::now());
            match found == expected {
                true => session.verified(1),
                false => {
                    session.wrong("serverStatus", format!("said {found:?}, and blocks {expected:?} were acknowledged"))
                }
            }
        }
        Ok(())
    }
}
