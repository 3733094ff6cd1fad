//! What Lua holds: its limit, and how it comes back from it.
//!
//! Lua 5.1 collects once it holds twice what was left the last time, and not because memory is short. After a script that held much that
//! would be beyond the limit: what nobody needs any more would count for ever, and nothing could be allocated again. So between two calls,
//! where more than half is used, everything is collected; and where that is not enough, a Lua that holds nothing takes its place.

use std::time::Duration;

use super::{Scripts, told};
use crate::log;

/// What Lua may hold: a script that wants more ends with an error, where it would end the server.
pub(super) const MEMORY_BYTES_MAX: usize = 512 << 20;
/// What the server itself may take of Lua beyond that, before a script and after it: there not all that fails could be caught.
const OWN_BYTES_MAX: usize = 64 << 20;
/// More than this between two calls is looked at.
pub(super) const TIDY_BYTES: usize = MEMORY_BYTES_MAX / 2;
/// How long a library that was loaded before may take to be loaded again.
const RELOAD_LIMIT: Duration = Duration::from_secs(5);

/// How far what Lua holds may go.
#[derive(Clone, Copy)]
pub(super) enum Limit {
    /// For what a script does.
    Script,
    /// For what the server does.
    Own,
    /// For what cannot be caught.
    None,
}

/// Sets the limit; the one of before, in bytes.
pub(super) fn limit(lua: &mlua::Lua, limit: Limit) -> mlua::Result<usize> {
    lua.set_memory_limit(match limit {
        Limit::Script => MEMORY_BYTES_MAX,
        Limit::Own => MEMORY_BYTES_MAX + OWN_BYTES_MAX,
        // With none at all the library around Lua would catch nothing.
        Limit::None => isize::MAX as usize,
    })
}

impl Scripts {
    /// Runs what is a script's, under its limit.
    pub(super) fn limited<T>(&self, run: impl FnOnce() -> mlua::Result<T>) -> mlua::Result<T> {
        limit(&self.lua, Limit::Script)?;
        let outcome = run();
        limit(&self.lua, Limit::Own)?;
        outcome
    }

    /// Lets Lua forget what nobody refers to any more. Nothing catches what fails in it, so that it has no limit.
    pub(super) fn expire(&self) {
        let _ = limit(&self.lua, Limit::None);
        self.lua.expire_registry_values();
        let _ = limit(&self.lua, Limit::Own);
    }

    /// Between two calls: sees to it that there is memory for the next one.
    pub fn tidy(&mut self) {
        if self.lua.used_memory() <= self.tidy_bytes {
            return;
        }
        // Where a finalizer fails there is more left, which is looked at.
        drop(self.collect());
        if let Err(why) = self.renew_if_full() {
            log::warning(format!("Lua could not be made anew: {}", told(&why)));
        }
        // What is there for good is not looked at after each call.
        let used = self.lua.used_memory();
        let is_full = used > TIDY_BYTES;
        self.tidy_bytes = if is_full { used + MEMORY_BYTES_MAX.saturating_sub(used) / 2 } else { TIDY_BYTES };
    }

    fn collect(&self) -> mlua::Result<()> {
        limit(&self.lua, Limit::None)?;
        let outcome = self.forget.call::<()>(());
        self.expire();
        // The first one ends what was under way.
        outcome.and_then(|()| self.lua.gc_collect()).and_then(|()| self.lua.gc_collect())
    }

    /// A new Lua with the same scripts and libraries: what they hold is gone. If these texts alone are too much, no script is kept.
    fn renew_if_full(&mut self) -> mlua::Result<()> {
        if self.lua.used_memory() <= TIDY_BYTES {
            return Ok(());
        }
        log::warning("Lua is full of what libraries and scripts hold: it begins anew with their texts");
        let fresh = Self::try_new(self.has_deprecated)?;
        let old = std::mem::replace(self, fresh);
        (self.libraries, self.functions) = (old.libraries, old.functions);
        let bodies: Vec<Box<[u8]>> = old.scripts.into_values().map(|script| script.body).collect();
        drop(old.lua);
        self.reload_libraries();
        for body in bodies {
            if self.lua.used_memory() > TIDY_BYTES || self.compile(&body).is_err() {
                log::warning("Lua is full of scripts' texts: as after SCRIPT FLUSH none is known");
                self.flush();
                return self.collect();
            }
        }
        Ok(())
    }

    /// Libraries whose functions are of a Lua that is no more are loaded again.
    pub fn reload_libraries(&mut self) {
        if self.functions.values().all(|registered| self.lua.owns_registry_value(&registered.function)) {
            return;
        }
        self.functions.clear();
        for (name, library) in std::mem::take(&mut self.libraries) {
            if let Err(why) = self.load_library(&library.code, true, Some(RELOAD_LIMIT)) {
                log::warning(format!("The library {name} is kept, and its functions are not there: {why}"));
                self.libraries.insert(name, library);
            }
        }
    }
}
