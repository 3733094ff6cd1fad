//! Programs that keep the machine busy beside a run.

use std::process::{Child, Command, Stdio};

use crate::world::World;

/// Programs of the name `busy-neighbour` that keep cores busy. They go with this value; each would go by itself after 60 s of
/// processor time.
pub struct Busy(Vec<Child>);

impl Busy {
    pub fn cores(world: &World, count: usize) -> Self {
        let program = world.data().with_file_name("busy-neighbour");
        if !program.exists() {
            std::os::unix::fs::symlink("/usr/bin/yes", &program).unwrap();
        }
        let spawn = |_| {
            let mut command = Command::new("sh");
            command.arg("-c").arg("ulimit -t 60; exec \"$0\"").arg(&program).stdout(Stdio::null()).spawn().unwrap()
        };
        Self((0..count).map(spawn).collect())
    }

    pub fn all_cores(world: &World) -> Self {
        Self::cores(world, std::thread::available_parallelism().unwrap().get())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
