//! What is known of the script that runs, and who serves the others meanwhile, or while data are read.

use std::time::Instant;

use super::Server;
use crate::failure::Failure;

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
    /// Somebody wants it to end.
    pub is_killed: bool,
    /// Libraries, and their functions: the engine itself is in use.
    pub loaded: (usize, usize),
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
pub struct Interlude(Option<Box<Serve>>);

/// Serves; whether the script has only now run for too long.
type Serve = dyn FnMut(&mut Server, bool);

impl std::fmt::Debug for Interlude {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Interlude").field(&self.0.is_some()).finish()
    }
}

impl Interlude {
    /// By this function.
    pub fn of(serve: impl FnMut(&mut Server, bool) + 'static) -> Self {
        Self(Some(Box::new(serve)))
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
        let Some(mut serve) = self.interlude.0.take() else { return true };
        serve(self, is_first);
        self.interlude.0 = Some(serve);
        self.running_script.as_ref().is_some_and(|script| script.is_killed)
    }

    /// Serves those who ask while data are read, of which they see nothing yet.
    pub fn serve_while_loading(&mut self) {
        if let Some(mut serve) = self.interlude.0.take() {
            serve(self, false);
            self.interlude.0 = Some(serve);
        }
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
        if script.has_written {
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
