//! The end of the server. It waits for replicas that lack something, for at most `shutdown-timeout`, while writes are postponed.

use super::{PausePurpose, Request, Server};
use crate::log;
use crate::replication::Replica;
use crate::waiting;

/// How the server is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Whether the RDB file is written before; nothing: if `save` is set.
    pub saves: Option<bool>,
    /// The server ends also if that fails; else it goes on.
    pub is_forced: bool,
    /// Replicas are not waited for.
    pub is_now: bool,
}

impl Shutdown {
    /// As words of `shutdown-on-sigterm` and `shutdown-on-sigint` say.
    pub fn of(words: &str) -> Self {
        let has = |wanted: &str| words.split(' ').any(|word| word == wanted);
        let saves = if has("save") { Some(true) } else { has("nosave").then_some(false) };
        Self { saves, is_forced: has("force"), is_now: has("now") }
    }
}

/// An end that waits for replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingShutdown {
    /// How the server is to end.
    pub shutdown: Shutdown,
    /// Until when it waits, milliseconds since 1970.
    pub deadline: i64,
}

impl Server {
    /// Replicas: those that have the whole stream, and all.
    pub fn replicas_in_sync(&self) -> (usize, usize) {
        let replicas = self.replicas();
        let in_sync = replicas.iter().filter(|(_, replica)| self.has_everything(replica)).count();
        (in_sync, replicas.len())
    }

    /// Whether a replica has said that it has the whole stream.
    pub fn has_everything(&self, replica: &Replica) -> bool {
        replica.acknowledged == self.stream_end()
    }

    /// The end does not come: who waits for it hears so, and what was postponed runs.
    pub fn give_up_shutdown(&mut self) {
        self.pending_shutdown = None;
        waiting::end_shutdown(self);
        self.end_pause(PausePurpose::Shutdown);
    }

    /// A signal asks for an end: at once, or when signals are heeded again.
    pub fn ask_to_end(&mut self, shutdown: Shutdown) {
        self.asked_to_end = Some(shutdown);
        self.heed_signals();
    }

    /// Does what a signal has asked for, unless `DEBUG PAUSE-CRON` lets it wait.
    pub fn heed_signals(&mut self) {
        if !self.is_tick_paused
            && let Some(shutdown) = self.asked_to_end.take()
        {
            self.requests.push(Request::Shutdown(shutdown));
        }
    }

    /// `SHUTDOWN ABORT`; whether there was an end to be given up.
    pub fn abort_shutdown(&mut self) -> bool {
        let requests = self.requests.len();
        self.requests.retain(|request| !matches!(request, Request::Shutdown(_)));
        let is_signalled = self.asked_to_end.take().is_some();
        let is_asked = is_signalled || self.requests.len() < requests || self.pending_shutdown.is_some();
        if is_asked {
            self.give_up_shutdown();
            log::notice("Shutdown manually aborted.");
        }
        is_asked
    }
}
