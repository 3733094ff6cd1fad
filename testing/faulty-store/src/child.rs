//! The real store as a child process.
//!
//! Promises: the store never outlives this process, however that ends; it gets SIGTERM, SIGINT and SIGHUP when this
//! process gets them; this process ends as the store ended, with its status or of its signal.
//!
//! The store must ask for its own death (`PR_SET_PDEATHSIG`), after the fork and before it is the store. That moment
//! cannot be had in safe Rust, so this binary starts itself again ([`BECOME_STORE`]), asks there, and then becomes the
//! store by `exec`, which keeps what was asked for.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};

use rustix::process::set_parent_process_death_signal;
use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, getppid, kill_process, setrlimit};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// First argument of this binary started as the store to be: then come the pid of its parent, the greatest size of a
/// file in bytes or `-`, the store's binary and its arguments.
pub const BECOME_STORE: &str = "--internal-become-store";
/// First argument of this binary started in its own place to die of the signal that is the second argument.
pub const DIE_OF: &str = "--internal-die-of";

/// This binary, even if the file was replaced since.
const MYSELF: &str = "/proc/self/exe";

/// Starts the store. To be called from the main thread: the store dies with the thread that started it.
pub fn start(store: &Path, arguments: &[OsString], file_max_bytes: Option<u64>) -> io::Result<Child> {
    let mut command = Command::new(MYSELF);
    command.arg(BECOME_STORE).arg(getpid().as_raw_pid().to_string());
    command.arg(file_max_bytes.map_or("-".to_owned(), |bytes| bytes.to_string()));
    command.arg(store).args(arguments);
    // In a group of its own, so that a signal to ours reaches it once and not twice.
    command.process_group(0);
    tokio::process::Command::from(command).spawn()
}

/// What this binary does when started as [`BECOME_STORE`]. Comes back only with what went wrong.
pub fn become_store(arguments: &[OsString]) -> String {
    let [parent, file_max_bytes, store, rest @ ..] = arguments else {
        return format!("{BECOME_STORE} is not for use by hand");
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return format!("cannot be made to die with the proxy: {error}");
    }
    // The proxy may have died before it could be asked for.
    if getppid().map(|pid| pid.as_raw_pid().to_string()).as_deref() != parent.to_str() {
        return "the proxy is gone".into();
    }
    let mut command = Command::new(store);
    if let Some(bytes) = file_max_bytes.to_str().and_then(|bytes| bytes.parse().ok()) {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        if let Err(error) = setrlimit(Resource::Fsize, limit) {
            return format!("cannot limit the size of files: {error}");
        }
        // A write beyond the limit is to fail like one on a full disk, instead of ending the process by SIGXFSZ. To
        // ignore a signal cannot be had in safe Rust, so a shell does it.
        command = Command::new("/bin/sh");
        command.args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#]).arg(store);
    }
    cannot_run(Path::new(store), &command.args(rest).exec())
}

/// Becomes the store without a proxy, with its arguments as they are. Comes back only with what went wrong.
pub fn exec_unchanged(store: &Path, arguments: &[OsString]) -> String {
    cannot_run(store, &Command::new(store).args(arguments).exec())
}

fn cannot_run(store: &Path, error: &io::Error) -> String {
    format!("cannot run {}: {error}", store.display())
}

/// Signals that are passed on. To be made before the store is started, so that none is missed.
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    /// Takes the signals over.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Passes signals on until the store has ended.
    pub async fn pass_on_until_end(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            let signal = tokio::select! {
                status = child.wait() => return status,
                _ = self.terminate.recv() => Signal::TERM,
                _ = self.interrupt.recv() => Signal::INT,
                _ = self.hang_up.recv() => Signal::HUP,
            };
            if let Some(pid) = pid(child) {
                // It fails only if the store has just ended, and the next turn sees that.
                let _ = kill_process(pid, signal);
            }
        }
    }
}

/// The process id of a store that was not waited for.
pub fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}

/// Ends this process as the store ended.
pub fn end_like(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        // SIGTERM is caught in this process, and in the same process started anew it is not.
        let error = Command::new(MYSELF).arg(DIE_OF).arg(signal.to_string()).exec();
        eprintln!("faulty-store: the store ended by signal {signal}, and this process cannot: {error}");
    }
    std::process::exit(status.code().unwrap_or(128 + status.signal().unwrap_or(0)))
}

/// What this binary does when started as [`DIE_OF`].
pub fn die_of(arguments: &[OsString]) -> ! {
    let number: i32 = arguments.first().and_then(|number| number.to_str()?.parse().ok()).unwrap_or(0);
    // Only signals that a store is sent are worth dying of; the others would leave core files of the wrong process.
    let known = [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP];
    if let Some(signal) = known.into_iter().find(|signal| signal.as_raw() == number) {
        // If it fails there is still the status.
        let _ = kill_process(getpid(), signal);
    }
    std::process::exit(128 + number)
}
