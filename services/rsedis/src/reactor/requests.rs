//! What commands ask of the loop: what needs files, sockets, or nobody's command running.

use wal::files::Directory;

use super::Reactor;
use super::sockets::Sockets;
use crate::server::Request;
use crate::{command, log};

impl<S: Sockets, D: Directory> Reactor<S, D> {
    /// Does what commands asked for. Nobody's command is running, and all effects are written.
    pub(super) fn do_requests(&mut self) {
        for request in std::mem::take(&mut self.server.requests) {
            match request {
                Request::Shutdown(shutdown) => self.shut_down(shutdown),
                Request::Save(slot) => {
                    let outcome = self.save_now();
                    if let Err(error) = &outcome {
                        log::warning(format_args!("save: {error}"));
                    }
                    self.reply(slot, outcome.map_err(|_| "ERR Errors trying to save. Check logs.".to_owned()));
                }
                Request::RewriteConfig(slot, extent) => {
                    let outcome = self.rewrite_config(extent);
                    self.reply(slot, outcome);
                }
                Request::LoadUsers(slot) => {
                    let outcome = self.load_users(slot);
                    self.reply(slot, outcome);
                }
                Request::SaveUsers(slot) => {
                    let outcome = self.save_users();
                    self.reply(slot, outcome);
                }
                Request::Migrate => self.migrate(),
                Request::DebugScript(slot) => self.debug_script(slot),
                Request::DropMaster => self.drop_master(),
                Request::BackgroundSave => self.begin_save(),
                Request::RewriteAof => self.begin_rewrite(),
                Request::ReloadAof(slot) => {
                    let outcome = self.reload();
                    self.reply(slot, outcome);
                }
                Request::Listen(slot) => {
                    let outcome = self.listen();
                    self.reply(slot, outcome);
                }
                Request::SwitchAof(slot) => {
                    let outcome = self.switch_aof();
                    if let Err(error) = &outcome {
                        log::warning(format_args!("append-only file: {error}"));
                    }
                    self.reply(slot, outcome.map_err(|error| format!("ERR append-only file: {error}")));
                }
            }
        }
        self.begin_due();
    }

    /// Listens where the settings say now; if that cannot be, all is as before CONFIG SET asked for it.
    fn listen(&mut self) -> Result<(), String> {
        match self.sockets.borrow_mut().listen(&self.server.settings) {
            Ok(()) => {
                self.server.settings_before = None;
                Ok(())
            }
            Err(error) => {
                log::warning(format_args!("{error}"));
                Err(command::go_back(&mut self.server, &error))
            }
        }
    }

    /// Answers a client whose command was a request, if it waits.
    pub(super) fn reply(&mut self, slot: Option<usize>, outcome: Result<(), String>) {
        if let Some(slot) = slot
            && let Some(Some(session)) = self.server.sessions.get_mut(slot)
        {
            match outcome {
                Ok(()) => session.reply.ok(),
                Err(text) => session.reply.error(&text),
            }
            self.touched.push(slot);
        }
    }
}
