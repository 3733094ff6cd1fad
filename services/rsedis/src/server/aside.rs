//! Keys and functions of a master that are read beside those that are served (`repl-diskless-load swapdb`), and take their place once
//! all have come, or are let go of.

use std::collections::{BTreeMap, HashMap};

use super::Server;
use crate::eviction;
use crate::keyspace::{Database, Key};
use crate::scripting::{Library, Registered};

/// See the module's description.
#[derive(Debug)]
pub struct Aside {
    /// Keys.
    pub databases: Vec<Database>,
    libraries: BTreeMap<String, Library>,
    functions: HashMap<String, Registered>,
}

impl Server {
    /// Keys will be read aside, into empty databases.
    pub fn begin_aside(&mut self) {
        let databases = (0..self.databases.len()).map(|_| eviction::empty_database(self)).collect();
        self.aside = Some(Box::new(Aside { databases, libraries: BTreeMap::new(), functions: HashMap::new() }));
    }

    /// Whether data are read that are not served yet, in the place of those of before or aside.
    pub fn reads_data(&self) -> bool {
        self.is_loading || self.aside.is_some()
    }

    /// Whether keys are read aside, and those that were here before answer meanwhile.
    pub fn serves_old_keys(&self) -> bool {
        self.aside.is_some() && !self.is_loading
    }

    /// What is read aside, if anything is, changes places with what is served: before a step of the reading, and behind it.
    pub fn exchange_aside(&mut self) {
        let Some(aside) = &mut self.aside else { return };
        std::mem::swap(&mut self.databases, &mut aside.databases);
        if let Some(scripts) = &mut self.scripts {
            std::mem::swap(&mut scripts.libraries, &mut aside.libraries);
            std::mem::swap(&mut scripts.functions, &mut aside.functions);
            scripts.reload_libraries();
        }
    }

    /// What was read aside is not wanted any more.
    pub fn discard_aside(&mut self) {
        let Some(aside) = self.aside.take() else { return };
        aside.databases.into_iter().for_each(|database| self.reclaimer.free_database(database));
    }

    /// What was read aside is served from now on. What was before is gone already.
    pub fn adopt_aside(&mut self) {
        self.exchange_aside();
        self.discard_aside();
        // Who watches or waits for a key that is there now learns of it, as of one that SWAPDB brings.
        let places = self.watchers.keys().chain(self.waiters.keys());
        let is_there = |(database, name): &&(usize, Vec<u8>)| self.databases[*database].find(&Key::new(name)).is_some();
        for (database, name) in places.filter(is_there).cloned().collect::<Vec<_>>() {
            self.touch_by(database, &name, 0);
        }
    }
}
