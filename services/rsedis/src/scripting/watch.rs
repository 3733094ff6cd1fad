//! The clock of what runs: who is to be served meanwhile, and when it ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use mlua::{Function, Lua};

use super::memory::{self, Limit};

/// Why a script ended that somebody did not want any more.
pub(super) const KILLED: &str = "Script killed by user with SCRIPT KILL.";

/// See the module's description.
pub(super) struct Watch {
    pub(super) began: Instant,
    /// How long nothing else is done.
    pub(super) limit: Duration,
    /// Serves others, and tells whether what runs is to end. Nothing: it ends at once.
    pub(super) interlude: Option<Function>,
    pub(super) is_over: Rc<Cell<bool>>,
}

/// The one of what runs, if it has one.
pub(super) type Watched = Rc<RefCell<Option<Rc<Watch>>>>;

/// For `prelude.lua`, where one instruction may take long.
pub(super) fn looking(lua: &Lua, watched: &Watched) -> mlua::Result<Function> {
    let watched = Rc::clone(watched);
    lua.create_function(move |lua, ()| {
        let watch = watched.borrow().clone();
        watch.map_or(Ok(()), |watch| watch.look(lua))
    })
}

impl Watch {
    /// Errors: what runs is to end.
    pub(super) fn look(&self, lua: &Lua) -> mlua::Result<()> {
        if self.began.elapsed() <= self.limit {
            return Ok(());
        }
        let why = match &self.interlude {
            None => "FUNCTION LOAD timeout",
            Some(interlude) => {
                // A script that has taken all memory must not keep the others from being served.
                let before = memory::limit(lua, Limit::Own)?;
                let ends = if self.is_over.get() { Ok(true) } else { interlude.call::<bool>(()) };
                lua.set_memory_limit(before)?;
                if !ends? {
                    return Ok(());
                }
                KILLED
            }
        };
        self.is_over.set(true);
        Err(mlua::Error::runtime(why))
    }
}
