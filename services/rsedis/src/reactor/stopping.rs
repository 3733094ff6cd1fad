//! The end of the loop: after replicas have everything, or have had their time (`shutdown-timeout`), and after the RDB file.

use wal::files::Directory;

use super::Reactor;
use super::sockets::{Signal, Sockets};
use crate::log;
use crate::server::{PausePurpose, PendingShutdown, Server, Shutdown};

/// A signal asks the server to end, as the settings say. Who interrupts it twice does not want to wait for what an end waits for.
pub(super) fn ask(server: &mut Server, signal: Signal) {
    if signal == Signal::Interrupt && server.pending_shutdown.is_some() {
        log::warning("You insist... exiting now.");
        std::process::exit(1);
    }
    let shutdown = Shutdown::of(server.settings.text(signal.parameter()));
    server.ask_to_end(shutdown);
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    /// See [`crate::server::Request::Shutdown`]. Who asks while an end is on its way waits for that one.
    pub(super) fn shut_down(&mut self, shutdown: Shutdown) {
        if self.server.pending_shutdown.is_some() {
            return;
        }
        log::notice("User requested shutdown...");
        let patience_millis = self.server.settings.millis("shutdown-timeout");
        let (in_sync, replicas) = self.server.replicas_in_sync();
        if shutdown.is_now || patience_millis == 0 || in_sync == replicas {
            return self.finish_shutdown(shutdown);
        }
        if !self.server.is_paused() && !self.server.replication.is_replica() {
            self.server.ask_replicas();
            self.server.replicate();
        }
        self.server.pause_writes(PausePurpose::Shutdown);
        let deadline = self.server.now.saturating_add(patience_millis);
        self.server.pending_shutdown = Some(PendingShutdown { shutdown, deadline });
        log::notice("Waiting for replicas before shutting down.");
    }

    /// In each turn: whether an end that waits has waited enough.
    pub(super) fn step_shutdown(&mut self) {
        let Some(PendingShutdown { shutdown, deadline }) = self.server.pending_shutdown else { return };
        let (in_sync, replicas) = self.server.replicas_in_sync();
        if in_sync == replicas || self.server.now >= deadline {
            self.finish_shutdown(shutdown);
        }
    }

    fn finish_shutdown(&mut self, shutdown: Shutdown) {
        self.tell_of_replicas();
        // A replica has its master's keys again. Here all would be lost, or what older files hold would come back.
        if self.is_writing_first_base() && !self.server.replication.is_replica() {
            if !shutdown.is_forced {
                log::warning("Writing initial AOF, can't exit.");
                log::warning("Errors trying to shut down the server. Check the logs for more information.");
                return self.server.give_up_shutdown();
            }
            log::warning("Writing initial AOF. Exit anyway.");
        }
        // Half of a master's keys are no reason to replace the file.
        let saves = shutdown.saves.unwrap_or(!self.server.settings.text("save").is_empty()) && !self.server.is_loading;
        if saves {
            log::notice("Saving the final RDB snapshot before exiting.");
        }
        match if saves { self.save_now() } else { Ok(()) } {
            Err(error) if !shutdown.is_forced => {
                log::warning(format_args!("Error trying to save the DB, can't exit: {error}"));
                log::warning("Errors trying to shut down the server. Check the logs for more information.");
                self.server.give_up_shutdown();
            }
            outcome => {
                if let Err(error) = outcome {
                    log::warning(format_args!("Error trying to save the DB, exit anyway: {error}"));
                }
                self.is_stopping = true;
            }
        }
    }

    /// Says which replicas lack something at the end.
    fn tell_of_replicas(&self) {
        let end = self.server.stream_end();
        let replicas = self.server.replicas();
        for (address, replica) in replicas.iter().filter(|(_, replica)| !self.server.has_everything(replica)) {
            log::warning(format_args!(
                "Lagging replica {address}:{} reported offset {} behind master, lag={}, state={}.",
                replica.port,
                end.saturating_sub(replica.acknowledged),
                replica.lag_seconds(self.server.now),
                replica.stage_word()
            ));
        }
        let (in_sync, all) = self.server.replicas_in_sync();
        if all > 0 {
            log::notice(format_args!("{in_sync} of {all} replicas are in sync when shutting down."));
        }
    }
}
