//! Child processes that end with their test, whatever becomes of it: dropped, they are killed and waited for; where the
//! test's own process is killed, the kernel kills them.
//!
//! The kernel does the latter when the *thread* ends that started a child (prctl(2), PR_SET_PDEATHSIG), and a test is a
//! thread. So one thread starts them all, and lives as long as the process. A test that is killed in the very moment between a fork and
//! setpriv's call leaves that one child.

use std::ffi::OsStr;
use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use crate::eventually;

/// A command for a program that the kernel kills when this process ends. Start it with [`Process::start`]. Its process
/// becomes the program's, so that it has the program's identifier.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    // By its path, for those who clear the environment.
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// What a command printed; it must succeed.
#[track_caller]
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A child process, killed and waited for when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a command, best one of [`command`], and uses it up.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let command = std::mem::replace(command, Command::new(""));
        let description = format!("{command:?}");
        let (reply, started) = channel();
        STARTER.lock().unwrap_or_else(PoisonError::into_inner).send((command, reply)).unwrap();
        let child = started.recv().unwrap();
        Self { child: child.unwrap_or_else(|error| panic!("{description} cannot be started: {error}")) }
    }

    /// Its identifier.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until it ends by itself, for at most [`crate::LONG`].
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the end of a process", || self.ended())
    }

    /// Kills it and waits for it.
    pub fn kill(&mut self) -> ExitStatus {
        // An error means that it has ended already.
        let _ = self.child.kill();
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process is there and not dead.
pub fn is_alive(id: u32) -> bool {
    state(id).is_some_and(|state| state != 'Z' && state != 'X')
}

/// The state of a process: `R`, `S`, `T` (stopped), … (proc_pid_stat(5), field 3); `None` where it is gone.
pub fn state(id: u32) -> Option<char> {
    fs::read_to_string(format!("/proc/{id}/stat")).ok()?.rsplit_once(") ")?.1.chars().next()
}

type Order = (Command, Sender<std::io::Result<Child>>);

/// The thread that starts processes.
static STARTER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (orders, taken) = channel::<Order>();
    let start = move || {
        for (mut command, reply) in taken {
            // Whoever asked is waiting.
            let _ = reply.send(command.spawn());
        }
    };
    std::thread::Builder::new().name("starter".into()).spawn(start).unwrap();
    Mutex::new(orders)
});

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    #[test]
    fn a_process_goes_when_it_is_dropped_and_not_when_the_thread_ends() {
        let started = std::thread::spawn(|| Process::start(command("sleep").arg("600"))).join().unwrap();
        let id = started.id();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(is_alive(id), "it went with the thread that asked for it");
        drop(started);
        assert_eq!(state(id), None, "it was not waited for");
    }

    /// What a process runs (proc_pid_comm(5)).
    fn name(id: u32) -> Option<String> {
        Some(fs::read_to_string(format!("/proc/{id}/comm")).ok()?.trim_end().to_owned())
    }

    #[test]
    fn a_process_goes_when_its_parent_is_killed() {
        let myself = std::env::current_exe().unwrap();
        let mut parent = Command::new(myself);
        parent.args(["process::tests::has_a_child", "--exact", "--ignored", "--nocapture"]).stdout(Stdio::piped());
        let mut parent = Process::start(&mut parent);
        let lines = BufReader::new(parent.child().stdout.take().unwrap()).lines();
        let id = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("child ")?.parse().ok()).unwrap();
        // Before setpriv has asked for it, the kernel knows of no signal to send.
        eventually("the program in the place of setpriv", || (name(id)? == "sleep").then_some(()));
        parent.kill();
        eventually("the end of the child", || (!is_alive(id)).then_some(()));
    }

    #[test]
    #[ignore = "not a test: the process that another test kills"]
    fn has_a_child() {
        let child = Process::start(command("sleep").arg("600"));
        println!("\nchild {}", child.id());
        std::thread::sleep(crate::LONG);
    }

    #[test]
    fn a_program_has_the_identifier_and_the_exit_code_of_its_process() {
        let mut process = Process::start(command("sh").args(["-c", "echo $$; exit 3"]).stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(process.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!((line.trim(), process.wait().code()), (process.id().to_string().as_str(), Some(3)));
    }
}
