//! What is known of the script that runs, and who serves the others meanwhile, or while data are read.

use std::time::{Duration, Instant};

use super::Server;
use crate::failure::Failure;
use crate::session::Session;

/// A script or a function that runs.
#[derive(Debug)]
pub struct RunningScript {
    /// The function's name, or the script's.
    pub name: String,
    /// The command that runs it.
    pub words: Vec<Vec<u8>>,
    /// It is a function, else a script.
    pub is_function: bool,
    /// It comes from the master.
    pub is_masters: bool,
    /// When it began.
    pub began: Instant,
    /// It has changed keys: it is not ended any more.
    pub has_written: bool,
    /// It has run for longer than `busy-reply-threshold`.
    pub is_busy: bool,
    /// Its client debugs it.
    pub is_debugged: bool,
    /// Somebody wants it to end.
    pub is_killed: bool,
    /// Libraries, and their functions: the engine itself is in use.
    pub loaded: (usize, usize),
}

/// A client of the debugger that says nothing for so long is asked no more. Somebody may think for minutes about a line, while everybody
/// else hears BUSY; who has gone home, or whose machine has gone without a word, must not keep them for ever.
pub const DEBUGGER_PATIENCE: Duration = Duration::from_secs(300);

/// What the client of the debugger says.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A command.
    Words(Vec<Vec<u8>>),
    /// What is none, and why.
    Wrong(&'static str),
    /// It has gone, or was silent for too long.
    Gone,
    /// Somebody else has ended the script.
    Killed,
}

/// For those who ask for anything else while a script runs.
const BUSY_SCRIPT: Failure =
    Failure::new("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");
const BUSY_FUNCTION: Failure =
    Failure::new("BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.");

impl RunningScript {
    /// Why something else cannot be done.
    pub fn refusal(&self) -> Failure {
        if self.is_function { BUSY_FUNCTION } else { BUSY_SCRIPT }
    }
}

/// Looks at who has come or has said something; the loop gives it.
#[derive(Default)]
pub struct Interlude {
    serve: Option<Box<Serve>>,
    hear: Option<Box<Hear>>,
}

/// Serves; whether the script has only now run for too long.
type Serve = dyn FnMut(&mut Server, bool);

/// Waits, for so long, for what the client at a slot says to the debugger.
type Hear = dyn FnMut(&mut Server, usize, Duration) -> Heard;

impl std::fmt::Debug for Interlude {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Interlude").field(&self.serve.is_some()).finish()
    }
}

impl Interlude {
    /// By these functions.
    pub fn of(
        serve: impl FnMut(&mut Server, bool) + 'static,
        hear: impl FnMut(&mut Server, usize, Duration) -> Heard + 'static,
    ) -> Self {
        Self { serve: Some(Box::new(serve)), hear: Some(Box::new(hear)) }
    }
}

impl Server {
    /// Why nothing else can be done now, if a script has run for too long.
    #[inline]
    pub fn busy(&self) -> Option<Failure> {
        // While data are read, that is what others are told.
        let script = self.running_script.as_ref().filter(|_| !self.is_loading);
        script.filter(|script| script.is_busy).map(|script| script.refusal())
    }

    /// Serves those who ask while a script runs; whether it is to end. Where there is nobody to serve there is nobody to end it: it does.
    pub fn serve_while_busy(&mut self) -> bool {
        let Some(script) = &mut self.running_script else { return false };
        let is_first = !std::mem::replace(&mut script.is_busy, true);
        let Some(mut serve) = self.interlude.serve.take() else { return true };
        serve(self, is_first);
        self.interlude.serve = Some(serve);
        self.running_script.as_ref().is_some_and(|script| script.is_killed)
    }

    /// Serves those who ask while data are read, of which they see nothing yet.
    pub fn serve_while_loading(&mut self) {
        if let Some(mut serve) = self.interlude.serve.take() {
            serve(self, false);
            self.interlude.serve = Some(serve);
        }
    }

    /// Tells the client whose script is debugged what there is, and waits for what it says. It stands among the others meanwhile, who are
    /// served as well.
    pub fn hear_debugger(&mut self, client: &mut Session, notes: &[u8]) -> Heard {
        let slot = client.slot;
        if slot >= self.sessions.len() {
            return Heard::Gone;
        }
        let Some(mut hear) = self.interlude.hear.take() else { return Heard::Gone };
        if let Some(script) = &mut self.running_script {
            script.is_busy = true;
        }
        client.reply.bytes.extend_from_slice(notes);
        self.sessions[slot] = Some(Box::new(std::mem::take(client)));
        let heard = hear(self, slot, DEBUGGER_PATIENCE);
        if let Some(session) = self.sessions[slot].take() {
            *client = *session;
        }
        self.interlude.hear = Some(hear);
        heard
    }

    /// SCRIPT KILL and FUNCTION KILL. Errors: why what runs is not ended.
    pub fn kill_script(&mut self, is_function: bool) -> Result<(), Failure> {
        let Some(script) = &mut self.running_script else {
            return Err(Failure::new("NOTBUSY No scripts in execution right now."));
        };
        if script.is_masters {
            return Err(Failure::new(
                "UNKILLABLE The busy script was sent by a master instance in the context of replication and cannot be killed.",
            ));
        }
        // The client of the debugger may end its script as well, and knows what stays.
        if script.has_written && !script.is_debugged {
            return Err(Failure::new(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script \
                 termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
            ));
        }
        if script.is_function != is_function {
            return Err(script.refusal());
        }
        script.is_killed = true;
        Ok(())
    }
}
