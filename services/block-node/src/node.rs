//! What all threads of a server share: who publishes, what is safe, what is in memory.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use service_kit::probes::Readiness;
use tokio::sync::{Semaphore, watch};
use wal::files::RealDirectory;

use crate::block::{Footer, HashOnly, Limits, ProofRules, Verified};
use crate::hash::Hash;
use crate::lending::{Lending, Loan, PIECE_BYTES};
use crate::messages::{EndCode, WireEra};
use crate::metrics::Metrics;
use crate::publish::{Candidate, PublisherId, Publishing};
use crate::recent::{Recent, Shared};
use crate::settings::Settings;
use crate::store::{Appended, Dictionary, Prepared, ReadError, Reader, Store, Trainer, Writer};
use crate::wire::WireError;

/// The check of `/readyz` that fails when no more blocks can be stored.
const STORE: &str = "store";
/// Blocks that are read from disk at a time.
const READS_MAX: usize = 32;
/// How long the repair of a block may take, others being written before it.
const REPAIR_PATIENCE: Duration = Duration::from_secs(30);

/// A verified block with what the writer needs.
pub struct Offered {
    root: Hash,
    footer: Footer,
    prepared: Prepared,
    shared: Arc<Shared>,
}

impl Offered {
    /// Compresses a block for the disk, and frames it for subscribers.
    fn of(verified: &Verified, dictionary: Option<Arc<Dictionary>>, era: WireEra) -> Result<Self, WireError> {
        let shared = Shared::new(verified.number, verified.root, &verified.bytes, era)?;
        let prepared = Prepared::with(verified, dictionary);
        Ok(Self { root: verified.root, footer: verified.footer, prepared, shared })
    }
}

/// A block on its way to the disk.
pub struct OnItsWay {
    prepared: Prepared,
    shared: Arc<Shared>,
    received: Instant,
}

/// A block that the writer has, and nobody else knows of.
struct Written {
    shared: Arc<Shared>,
    stored_bytes: usize,
    received: Instant,
}

/// Why a damaged block is not replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// Nothing to compare it with.
    #[error(
        "block {0}: neither the block before nor the one behind it is whole here, so that nothing tells whether it is the right one"
    )]
    Alone(u64),
    /// A block of another history.
    #[error("block {0} does not stand between those beside it")]
    Another(u64),
    /// The store.
    #[error("block {0} was not written")]
    NotWritten(u64),
}

/// What readers may see.
#[derive(Clone, Copy, Debug)]
pub struct Tip {
    /// One behind the last block that is safe.
    pub next: u64,
    /// When that became safe.
    pub at: Instant,
    /// The server stops.
    pub is_stopping: bool,
}

struct Inner {
    publishing: Publishing<OnItsWay>,
    written: VecDeque<Written>,
}

/// The server's state.
pub struct Node {
    /// How it was started.
    pub settings: Settings,
    /// What is counted.
    pub metrics: Metrics,
    /// Why it is not ready, if it is not.
    pub readiness: Readiness,
    /// What is safe on disk.
    pub reader: Reader<RealDirectory>,
    /// What is in memory.
    pub recent: Recent,
    /// What subscribers hold.
    pub lending: Lending,
    inner: Mutex<Inner>,
    writer: Mutex<Option<Writer>>,
    trainer: Mutex<Trainer>,
    changed: watch::Sender<()>,
    tip: watch::Sender<Tip>,
    reads: Semaphore,
    began: Instant,
    rules: ProofRules,
}

impl Node {
    /// Goes on with an open store, and gives it its thread.
    pub fn start(settings: Settings, store: Store<RealDirectory>) -> io::Result<Arc<Self>> {
        let reader = store.reader();
        let publishing = Publishing::new(settings.publish, reader.first(), store.chain().clone());
        let tip = Tip { next: reader.next(), at: Instant::now(), is_stopping: false };
        let rules = ProofRules { accepts_dummy: settings.accept_dummy_proofs, verifier: Arc::new(HashOnly) };
        let metrics = Metrics::default();
        metrics.last_block.set(reader.last().map_or(-1, |last| last as i64));
        metrics.accepting.set(1);
        let readiness = Readiness::default();
        readiness.is_there(STORE);
        let node = Arc::new(Self {
            recent: Recent::new(settings.cache_bytes),
            lending: Lending::new(settings.readers_memory_bytes, metrics.lent_bytes.clone()),
            settings,
            metrics,
            readiness,
            reader,
            inner: Mutex::new(Inner { publishing, written: VecDeque::new() }),
            writer: Mutex::new(None),
            trainer: Mutex::new(Trainer::new(store.dictionary())),
            changed: watch::Sender::new(()),
            tip: watch::Sender::new(tip),
            reads: Semaphore::new(READS_MAX),
            began: Instant::now(),
            rules,
        });
        let of_writer = Arc::downgrade(&node);
        let writer = Writer::start(store, move |appended| {
            if let Some(node) = of_writer.upgrade() {
                node.appended(appended);
            }
        })?;
        *node.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
        Ok(node)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks or tells who publishes what; everybody who waits for a change looks again.
    pub fn publishing<T>(&self, act: impl FnOnce(&mut Publishing<OnItsWay>) -> T) -> T {
        let (result, publishers, held_bytes, version) = self.with(|inner| {
            let before = inner.publishing.version();
            let result = act(&mut inner.publishing);
            let publishing = &inner.publishing;
            let version = (publishing.version() != before).then_some(());
            (result, publishing.publishers(), publishing.held_bytes(), version)
        });
        self.metrics.publishers.set(publishers as i64);
        self.metrics.held_bytes.set(held_bytes as i64);
        if version.is_some() {
            self.changed.send_replace(());
        }
        result
    }

    /// Tells when something has changed for publishers.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Tells when a block has become safe.
    pub fn tip(&self) -> watch::Receiver<Tip> {
        self.tip.subscribe()
    }

    /// Since the start.
    pub fn now_micros(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// What a block may take.
    pub fn block_limits(&self) -> Limits {
        // A block must fit into a message, or nobody could read it with getBlock.
        Limits { block_bytes_max: self.settings.message_bytes_max.saturating_sub(64) }
    }

    /// Which proofs are accepted.
    pub fn proof_rules(&self) -> ProofRules {
        self.rules.clone()
    }

    fn trainer(&self) -> MutexGuard<'_, Trainer> {
        self.trainer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a verified block ready to be offered.
    pub fn prepare(self: &Arc<Self>, verified: &Verified) -> Result<Offered, WireError> {
        let (samples, dictionary) = {
            let mut trainer = self.trainer();
            (trainer.take(&verified.bytes), trainer.dictionary())
        };
        if let Some(samples) = samples {
            let node = Arc::clone(self);
            let train = move || {
                let dictionary = samples.train();
                tracing::info!(bytes = dictionary.as_ref().map(|found| found.bytes().len()), "trained a dictionary");
                node.trainer().trained(dictionary);
            };
            // Without a thread there is no dictionary, and blocks are stored larger.
            if let Err(error) = std::thread::Builder::new().name("dictionary".into()).spawn(train) {
                tracing::warn!("no dictionary is trained: {error}");
            }
        }
        Offered::of(verified, dictionary, self.settings.wire_era)
    }

    /// A publisher's block is whole and its hash verified.
    pub fn offer(&self, id: PublisherId, offered: Offered, began: Instant, received: Instant) {
        let Offered { root, footer, prepared, shared } = offered;
        self.metrics.framed.inc();
        self.metrics.receive.observe(received.duration_since(began));
        self.metrics.verify.observe(received.elapsed());
        let block = OnItsWay { prepared, shared, received };
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // Under one lock, so that the writer gets them in the order in which they are submitted.
        self.with(|inner| {
            for OnItsWay { prepared, shared, received } in inner.publishing.whole(id, Candidate { root, footer, block })
            {
                let stored_bytes = prepared.stored.len();
                inner.written.push_back(Written { shared, stored_bytes, received });
                if let Some(writer) = &*writer {
                    writer.append(prepared);
                }
            }
        });
        self.changed.send_replace(());
    }

    /// On the writer's thread.
    fn appended(&self, appended: Appended) {
        match appended {
            Appended::Safe { last, took } => {
                self.metrics.sync.observe(took);
                let written = self.with(|inner| {
                    let count = inner.written.iter().take_while(|written| written.shared.number <= last).count();
                    inner.written.drain(..count).collect::<Vec<_>>()
                });
                for Written { shared, stored_bytes, received } in written {
                    self.metrics.blocks.inc();
                    self.metrics.plain_bytes.inc_by(shared.block_bytes() as u64);
                    self.metrics.stored_bytes.inc_by(stored_bytes as u64);
                    self.metrics.acknowledge.observe(received.elapsed());
                    self.recent.push(shared);
                }
                self.metrics.last_block.set(last as i64);
                self.metrics.cached_bytes.set(self.recent.bytes() as i64);
                self.publishing(|publishing| publishing.safe(last));
                self.tip.send_modify(|tip| (tip.next, tip.at) = (last + 1, Instant::now()));
            }
            Appended::Repaired(number) => {
                tracing::info!(number, "a damaged block is whole again");
                self.metrics.repaired.inc();
                self.metrics.quarantined.set(self.reader.quarantined() as i64);
                self.tip.send_modify(|_| ());
            }
            Appended::Failed(error) => {
                tracing::error!("{error}");
                self.metrics.accepting.set(0);
                self.readiness.wait_for(STORE, error.to_string());
                self.publishing(|publishing| publishing.end_all(EndCode::PersistenceFailed));
            }
        }
    }

    /// A block, from memory or from disk.
    pub async fn read(self: &Arc<Self>, number: u64) -> Result<Arc<Shared>, ReadError> {
        if let Some(block) = self.recent.get(number) {
            return Ok(block);
        }
        // It is never closed.
        let _place = self.reads.acquire().await;
        // Somebody else may have read it in the meantime.
        if let Some(block) = self.recent.get(number) {
            return Ok(block);
        }
        let node = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            node.metrics.read_from_disk.inc();
            let stored = node.reader.read(number)?;
            node.metrics.framed.inc();
            let shared = Shared::new(number, stored.root, &stored.bytes, node.settings.wire_era);
            shared.map_err(|error| ReadError::Damaged { number, what: error.to_string() })
        });
        match read.await {
            Ok(Ok(shared)) => Ok(self.recent.add_past(shared)),
            Ok(Err(error @ ReadError::NotStored(_))) => Err(error),
            Ok(Err(error)) => {
                tracing::error!("{error}");
                self.metrics.quarantined.set(self.reader.quarantined() as i64);
                Err(error)
            }
            Err(error) => Err(ReadError::Files { number, source: io::Error::other(error) }),
        }
    }

    /// Takes a block of which the copy here is damaged, and waits until it is safe. It must continue the block before it and be continued
    /// by the one behind it, as far as these are here, and one of them must be.
    pub async fn repair(self: &Arc<Self>, verified: Verified) -> Result<(), RepairError> {
        let node = Arc::clone(self);
        let number = verified.number;
        let prepare = move || {
            node.fits(&verified)?;
            Ok(Prepared::of(&verified))
        };
        let prepared = match tokio::task::spawn_blocking(prepare).await {
            Ok(prepared) => prepared?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let mut tip = self.tip();
        match &*self.writer.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(writer) => writer.repair(prepared),
            None => return Err(RepairError::NotWritten(number)),
        }
        let is_over = |tip: &Tip| !self.reader.quarantined_blocks(usize::MAX).contains(&number) || tip.is_stopping;
        let written = tokio::time::timeout(REPAIR_PATIENCE, tip.wait_for(is_over)).await;
        match written {
            Ok(Ok(tip)) if !tip.is_stopping => Ok(()),
            _ => Err(RepairError::NotWritten(number)),
        }
    }

    /// Whether a block stands between those beside it.
    fn fits(&self, verified: &Verified) -> Result<(), RepairError> {
        let number = verified.number;
        let rules = ProofRules { accepts_dummy: true, verifier: Arc::new(HashOnly) };
        let before = number.checked_sub(1).and_then(|before| self.reader.read(before).ok());
        let behind = self.reader.read(number + 1).ok();
        let behind = behind.and_then(|behind| Verified::of(&behind.bytes, self.block_limits(), &rules).ok());
        let continues = before.map(|before| before.root == verified.footer.previous_root);
        let is_continued = behind.map(|behind| behind.footer.previous_root == verified.root);
        match (continues, is_continued) {
            (None, None) => Err(RepairError::Alone(number)),
            (Some(false), _) | (_, Some(false)) => Err(RepairError::Another(number)),
            _ => Ok(()),
        }
    }

    /// A block for a subscriber, as soon as there is room for it.
    pub async fn lend(self: &Arc<Self>, number: u64) -> Result<Arc<Loan>, ReadError> {
        if let Some(loan) = self.lending.shared(number) {
            return Ok(loan);
        }
        // How large it is on disk is not known before it is read.
        let bytes = match self.recent.get(number) {
            Some(block) if block.frames_bytes() <= PIECE_BYTES => 0,
            Some(block) => block.frames_bytes(),
            None => self.settings.message_bytes_max,
        };
        let room = self.lending.room(bytes).await;
        let block = self.read(number).await?;
        Ok(self.lending.lend(block, room))
    }

    /// Whether blocks are compared with the tree of all root hashes before.
    pub fn knows_all(&self) -> bool {
        self.with(|inner| inner.publishing.knows_all())
    }

    /// Gives up blocks that are late, for as long as this runs. It sleeps while none is on its way.
    pub async fn tick(&self) {
        let mut changed = self.changed();
        loop {
            changed.borrow_and_update();
            if self.with(|inner| inner.publishing.needs_tick()) {
                tokio::time::sleep(Duration::from_millis(250)).await;
                let now = self.now_micros();
                self.publishing(|publishing| publishing.tick(now));
            } else if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ends all streams: publishers are told, subscribers have their last whole block.
    pub fn end_streams(&self) {
        self.readiness.wait_for("server", "it stops");
        self.publishing(|publishing| publishing.end_all(EndCode::Success));
        self.tip.send_modify(|tip| tip.is_stopping = true);
    }

    /// Makes safe what was submitted, and ends the writer.
    pub fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(writer);
    }
}
