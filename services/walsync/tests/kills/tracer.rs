//! A process that starts a program, counts its system calls over all of its threads, and kills it with SIGKILL in the place of one of them.
//!
//! Not `strace -f -e inject=…:signal=KILL:when=N`: that counts for each thread, so that the calls of one which makes few of them are
//! never come to behind those of one which makes many.
//!
//! Counted are the calls by which a process does something outside of itself: a kill anywhere between two of them leaves behind
//! what a kill in the place of the second one does. Whoever does not believe that counts all of them ([`Calls::All`]).

use harness::{Process, command};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};

/// Which calls count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Those that do something outside of the process.
    Effects,
    /// All.
    All,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this exit code, after so many calls that count.
    Exited(i32, u64),
    /// In the place of a call.
    KilledAt(String),
}

const WHERE: &str = "WALSYNC_TEST_KILL_AT";
const CALLS: &str = "WALSYNC_TEST_CALLS";
const PROGRAM: &str = "WALSYNC_TEST_PROGRAM";

/// A program that is traced.
pub struct Traced {
    process: Process,
    output: BufReader<ChildStdout>,
    program: u32,
}

impl Traced {
    /// Starts `program`, to be killed in the place of its `at`th call; errors go to `log`.
    pub fn start(program: &Command, at: u64, calls: Calls, log: std::fs::File) -> Traced {
        let mut words = vec![program.get_program().to_str().unwrap().to_owned()];
        words.extend(program.get_args().map(|word| word.to_str().unwrap().to_owned()));
        let mut command = command(std::env::current_exe().unwrap());
        command.args(["--exact", "tracer_process", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(WHERE, at.to_string()).env(CALLS, format!("{calls:?}")).env(PROGRAM, words.join("\n"));
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(log));
        let output = BufReader::new(process.child().stdout.take().unwrap());
        let mut traced = Traced { process, output, program: 0 };
        traced.program = traced.told("program").parse().unwrap();
        traced
    }

    /// What the tracer says of something. Others print, too.
    fn told(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the tracer has died");
            if let Some(said) = line.trim_end().split_once("tracer: ").and_then(|(_, said)| said.strip_prefix(what)) {
                return said.trim().to_owned();
            }
        }
    }

    /// Whether it has ended, however.
    pub fn is_over(&mut self) -> bool {
        self.process.ended().is_some()
    }

    /// Asks the program to end; it may be dead.
    pub fn terminate(&self) {
        let _ = kill(Pid::from_raw(self.program.cast_signed()), Signal::SIGTERM);
    }

    /// Waits for the end.
    pub fn end(mut self) -> End {
        let said = self.told("end");
        self.process.wait();
        match said.split_once(' ') {
            Some(("killed", call)) => End::KilledAt(call.to_owned()),
            Some((code, calls)) => End::Exited(code.parse().unwrap(), calls.parse().unwrap()),
            None => panic!("{said}"),
        }
    }
}

/// The body of the process that traces.
#[expect(clippy::zombie_processes, reason = "waitpid waits for the program and for its threads")]
pub fn tracer_process() {
    let variable = |name| std::env::var(name).expect("started by a test");
    let at: u64 = variable(WHERE).parse().unwrap();
    let all = variable(CALLS) == "All";
    // It waits until it is traced, and only then becomes the program.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "read go && exec \"$@\" </dev/null", "sh"]).args(variable(PROGRAM).lines());
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let program = Pid::from_raw(child.id().cast_signed());
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(program, options).unwrap();
    ptrace::interrupt(program).unwrap();
    println!("\ntracer: program {program}");
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();

    let (mut became, mut count, mut killed) = (false, 0, None);
    loop {
        // This thread's own alone: another one of this process may have children, too.
        let status = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)).unwrap();
        let (thread, signal) = match status {
            WaitStatus::Exited(thread, code) if thread == program => {
                println!("\ntracer: end {code} {count}");
                return;
            }
            WaitStatus::Signaled(thread, signal, _) if thread == program => {
                let call = killed.unwrap_or_else(|| panic!("{signal} of somebody else"));
                println!("\ntracer: end killed {call}");
                return;
            }
            WaitStatus::PtraceSyscall(thread) => {
                if let Some(call) = entered(thread).filter(|call| became && (all || call.has_effect()))
                    && killed.is_none()
                {
                    count += 1;
                    if count == at {
                        killed = Some(call.name());
                        // The call is not begun any more.
                        kill(program, Signal::SIGKILL).unwrap();
                    }
                }
                (thread, None)
            }
            WaitStatus::PtraceEvent(thread, _, event) => {
                became |= event == nix::libc::PTRACE_EVENT_EXEC;
                (thread, None)
            }
            WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
            _ => continue,
        };
        // Where it is dead by now, its end comes next.
        let _ = ptrace::syscall(thread, signal);
    }
}

/// A call with its first arguments.
struct Call {
    number: i64,
    arguments: [u64; 4],
}

/// The call that a thread is about to begin; `None` where it comes out of one.
fn entered(thread: Pid) -> Option<Call> {
    let registers = ptrace::getregs(thread).ok()?;
    let begins = registers.rax.cast_signed() == -i64::from(nix::libc::ENOSYS);
    let arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10];
    begins.then(|| Call { number: registers.orig_rax.cast_signed(), arguments })
}

macro_rules! effects {
    ($($name:ident),* $(,)?) => {
        /// Calls that do something outside of a process whatever their arguments are.
        const EFFECTS: &[(i64, &str)] = &[$((nix::libc::$name, stringify!($name))),*];
    };
}

effects!(
    SYS_write,
    SYS_writev,
    SYS_pwrite64,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_copy_file_range,
    SYS_sendfile,
    SYS_splice,
    SYS_fsync,
    SYS_fdatasync,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_rename,
    SYS_renameat,
    SYS_renameat2,
    SYS_link,
    SYS_linkat,
    SYS_unlink,
    SYS_unlinkat,
    SYS_mkdir,
    SYS_mkdirat,
    SYS_rmdir,
    SYS_chmod,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_utimensat,
    SYS_flock,
    // Locks go with what is closed.
    SYS_close,
    SYS_socket,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept4,
    SYS_shutdown,
    SYS_sendto,
    SYS_sendmsg,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_exit_group,
);

impl Call {
    fn has_effect(&self) -> bool {
        use nix::libc;
        let [_, second, third, fourth] = self.arguments;
        let has = |flags: u64, flag: libc::c_int| flags & flag as u64 != 0;
        match self.number {
            libc::SYS_openat => has(third, libc::O_CREAT) || has(third, libc::O_TRUNC),
            libc::SYS_mmap => has(third, libc::PROT_WRITE) && has(fourth, libc::MAP_SHARED),
            // Locks: what other commands change goes with the process.
            libc::SYS_fcntl => {
                [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK, libc::F_OFD_SETLKW].contains(&(second as i32))
            }
            number => EFFECTS.iter().any(|(effect, _)| *effect == number),
        }
    }

    fn name(&self) -> String {
        let known = EFFECTS.iter().find(|(number, _)| *number == self.number).map(|(_, name)| *name);
        let name = match self.number {
            nix::libc::SYS_openat => "openat",
            nix::libc::SYS_fcntl => "fcntl",
            nix::libc::SYS_mmap => "mmap",
            _ => known.unwrap_or("another"),
        };
        name.trim_start_matches("SYS_").to_owned()
    }
}

/// How often a program was killed in the place of which call.
#[derive(Debug, Default)]
pub struct Tally(std::collections::BTreeMap<String, u32>);

impl Tally {
    /// One more.
    pub fn add(&mut self, call: String) {
        *self.0.entry(call).or_default() += 1;
    }

    /// How many in all.
    pub fn total(&self) -> u32 {
        self.0.values().sum()
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let calls: Vec<String> = self.0.iter().map(|(call, count)| format!("{call} {count}")).collect();
        write!(formatter, "{} kills: {}", self.total(), calls.join(", "))
    }
}
