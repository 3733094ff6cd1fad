//! What a member does beside its clients' work: it follows what the group says of its members; and a leader proposes the end of keys and
//! sessions whose time is over, and writes into the log which members have acknowledged entries. When it proposes that, and what ends, is
//! decided by the time of the log.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Node;
use crate::state::{Command, StorageError, known_members, next_expiry, serial_of};

/// How often it looks; so late does a key end at most, beside the log's own time.
const ROUND: Duration = Duration::from_millis(50);
/// Rounds between looks at the members.
const MEMBERS_ROUNDS: u32 = 10;

/// The thread that does it.
pub(super) struct Housekeeping {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Housekeeping {
    pub(super) fn start(node: Node) -> io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let of_thread = Arc::clone(&stop);
        let work = move || {
            let (mut leads_since, mut cannot_read, mut is_told) = (None, false, false);
            for round in 0_u32.. {
                node.follow_members();
                tell(&mut cannot_read, follow_serial(&node));
                warn_of_open_port(&node, &mut is_told);
                if node.handle().leader().1 {
                    // Nobody could keep a lease alive while nobody led, and this machine's date may be ahead of that of who led before: leases
                    // begin anew as of the log's time when this member came to lead.
                    let (since, renews) =
                        leads_since.get_or_insert_with(|| (Instant::now(), Some(node.handle().time_millis())));
                    if since.elapsed() >= node.options().election {
                        tell(&mut cannot_read, expire(&node, renews));
                    }
                    if round % MEMBERS_ROUNDS == 0 {
                        tell(&mut cannot_read, see_members(&node));
                    }
                } else {
                    leads_since = None;
                }
                let (lock, stopped) = &*of_thread;
                let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
                let wait = stopped.wait_timeout_while(guard, ROUND, |stop| !*stop);
                if *wait.unwrap_or_else(PoisonError::into_inner).0 {
                    return;
                }
            }
        };
        Ok(Self { stop, thread: thread::Builder::new().name("housekeeping".into()).spawn(work)? })
    }

    pub(super) fn stop(self) {
        let (lock, stopped) = &*self.stop;
        *lock.lock().unwrap_or_else(PoisonError::into_inner) = true;
        stopped.notify_all();
        // A thread that has panicked has ended as well.
        let _ = self.thread.join();
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
fn propose(node: &Node, command: &Command) -> bool {
    node.handle().propose_blocking(command.encode()).is_ok()
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
fn expire(node: &Node, renews: &mut Option<u64>) -> Result<(), StorageError> {
    loop {
        // Not this machine's date: a log whose time is ahead, after a clock that was wrong, counts what ends by its own.
        let now = node.handle().time_millis();
        let next = next_expiry(&*node.shown().view().rows)?;
        if next.is_none_or(|next| next > now) {
            return Ok(());
        }
        if let Some(since_millis) = *renews {
            if !propose(node, &Command::Renew(since_millis)) {
                return Ok(());
            }
            *renews = None;
        }
        // An entry ends a bounded number of keys: as many entries as it takes.
        if !propose(node, &Command::Expire) {
            return Ok(());
        }
    }
}

/// Learns which group this is, once the log says so. Who leads says it, if nobody has.
fn follow_serial(node: &Node) -> Result<(), StorageError> {
    if node.0.serial.told() != Some(0) {
        return Ok(());
    }
    match serial_of(&*node.shown().view().rows)? {
        Some(serial) => {
            let mut checked = node.0.checked.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = checked.is_of(serial) {
                // It is tried again.
                tracing::warn!(%error, "which group this is cannot be written down");
                return Ok(());
            }
            node.0.serial.set(serial);
            node.0.peers.log_is_known();
        }
        None if node.handle().leader().1 => {
            propose(node, &Command::Serial(rand::random_range(1..=u64::MAX)));
        }
        None => {}
    }
    Ok(())
}

/// Who has a part of the log may not come with an empty one.
fn see_members(node: &Node) -> Result<(), StorageError> {
    let status = node.status();
    let known = known_members(&*node.shown().view().rows)?;
    let seen: BTreeSet<u64> = known.into_iter().filter(|(_, known)| known.is_seen).map(|(id, _)| id).collect();
    let have_acknowledged = status.progress.iter().filter(|(_, matched)| *matched > 0).map(|(id, _)| *id);
    let new: Vec<u64> = have_acknowledged.filter(|id| !seen.contains(id)).collect();
    if !new.is_empty() {
        propose(node, &Command::Seen(new));
    }
    Ok(())
}
