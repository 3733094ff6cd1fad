//! What a member does beside its clients' work: it follows what the group says of its members; and a leader proposes the end of keys and
//! sessions whose time is over, and writes into the log which members have acknowledged entries. When it proposes that, and what ends, is
//! decided by the time of the log.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::Node;
use crate::state::{Command, StorageError, next_expiry};

/// How often a leader looks; so late does a key end at most, beside the log's own time. So long does what has failed wait until it is tried again.
const ROUND: Duration = Duration::from_millis(50);

/// The thread that does it.
pub(super) struct Housekeeping {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Housekeeping {
    pub(super) fn start(node: Node) -> io::Result<Self> {
        let ((stop, stopped), (tell, told)) = (oneshot::channel(), mpsc::channel());
        let work = move || {
            let runtime = match Builder::new_current_thread().enable_time().build() {
                Ok(runtime) => runtime,
                // An error: nobody waits for it.
                Err(error) => return drop(tell.send(error)),
            };
            drop(tell);
            runtime.block_on(async {
                tokio::select! {
                    // An error: nobody is there any more who would say so.
                    _ = stopped => {}
                    () = keep(&node) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("housekeeping".into()).spawn(work)?;
        told.recv().map_or(Ok(Self { stop, thread }), Err)
    }

    pub(super) fn stop(self) {
        // An error: it has ended by itself.
        let _ = self.stop.send(());
        // A thread that has panicked has ended as well.
        let _ = self.thread.join();
    }
}

/// Does what there is to do, and waits until there may be more: a leader for a round at most, others until something changes.
async fn keep(node: &Node) {
    // Before the first look, so that no change is missed.
    let (mut roster, mut votes) = (node.shown().roster(), node.follow_votes());
    let (mut users, mut leadership) = (node.shown().users(), node.leadership());
    let (mut leads_since, mut cannot_read, mut is_told) = (None, false, false);
    loop {
        let is_complete = node.follow_members() & follow_serial(node).await;
        warn_of_open_port(node, &mut is_told);
        let leads = node.leads();
        if leads {
            // Nobody could keep a lease alive while nobody led, and this machine's date may be ahead of that of who led before: leases
            // begin anew as of the log's time when this member came to lead.
            let (since, renews) =
                leads_since.get_or_insert_with(|| (Instant::now(), Some(node.handle().time_millis())));
            if since.elapsed() >= node.options().election {
                tell(&mut cannot_read, expire(node, renews).await);
            }
            see_members(node).await;
        } else {
            leads_since = None;
        }
        tokio::select! {
            Ok(()) = roster.changed() => {}
            Ok(()) = votes.changed() => {}
            Ok(()) = users.changed() => {}
            Ok(()) = leadership.changed() => {}
            () = sleep(ROUND), if leads || !is_complete => {}
            // The member has ended; it is stopped next.
            else => return,
        }
    }
}

/// Says, at each start and when users are enabled, that they keep out nobody who reaches the port of members.
fn warn_of_open_port(node: &Node, is_told: &mut bool) {
    let is_needed = node.0.has_open_port && node.users().is_enabled();
    if is_needed && !*is_told {
        tracing::warn!(
            "users are asked for, but whoever reaches the port for other members may do everything there, and turn users off: start the members \
             with --peer-tls-certificate, --peer-tls-key and --peer-tls-authority, or let nobody else reach that port"
        );
    }
    *is_told = is_needed;
}

/// Proposes, and waits until it was applied, so that the same is not proposed again and again.
async fn propose(node: &Node, command: &Command) -> bool {
    node.handle().propose_async(command.encode()).await.is_ok()
}

/// Says once that the state cannot be read, until it can be again: as long as that lasts nothing ends.
fn tell(cannot_read: &mut bool, done: Result<(), StorageError>) {
    if let Err(error) = &done
        && !*cannot_read
    {
        tracing::warn!(%error, "the state cannot be read: no key, lease or session ends; start the member again, or replace it");
    }
    *cannot_read = done.is_err();
}

/// Ends what is over. Before that, once: leases begin anew as of `renews`; where nothing is to end, that is not said.
async fn expire(node: &Node, renews: &mut Option<u64>) -> Result<(), StorageError> {
    loop {
        // Not this machine's date: a log whose time is ahead, after a clock that was wrong, counts what ends by its own.
        let now = node.handle().time_millis();
        let next = next_expiry(&*node.shown().view().rows)?;
        if next.is_none_or(|next| next > now) {
            return Ok(());
        }
        if let Some(since_millis) = *renews {
            if !propose(node, &Command::Renew(since_millis)).await {
                return Ok(());
            }
            *renews = None;
        }
        // An entry ends a bounded number of keys: as many entries as it takes.
        if !propose(node, &Command::Expire).await {
            return Ok(());
        }
    }
}

/// Learns which group this is, once the log says so. Who leads says it, if nobody has. `false`: it is to be tried again.
async fn follow_serial(node: &Node) -> bool {
    if node.0.serial.told() != Some(0) {
        return true;
    }
    match node.shown().known().map(|known| known.serial) {
        Some(Some(serial)) => {
            if let Err(error) = node.0.known.change(|identity| identity.is_of(serial)) {
                tracing::warn!(%error, "which group this is cannot be written down");
                return false;
            }
            node.0.serial.set(serial);
            node.0.peers.log_is_known();
            true
        }
        Some(None) if node.leads() => propose(node, &Command::Serial(rand::random_range(1..=u64::MAX))).await,
        Some(None) | None => true,
    }
}

/// Who has a part of the log may not come with an empty one.
async fn see_members(node: &Node) {
    let Some(known) = node.shown().known() else { return };
    let is_seen = |id: &u64| known.members.get(id).is_some_and(|known| known.is_seen);
    if node.follow_votes().borrow().all().iter().all(is_seen) {
        return;
    }
    let progress = node.status().progress;
    let have_acknowledged = progress.iter().filter(|(_, matched)| *matched > 0).map(|(id, _)| *id);
    let new: Vec<u64> = have_acknowledged.filter(|id| !is_seen(id)).collect();
    if !new.is_empty() {
        propose(node, &Command::Seen(new)).await;
    }
}
