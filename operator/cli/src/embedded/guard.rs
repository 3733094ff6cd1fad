//! Two small processes that keep the promise "nothing stays behind", even when storebench is killed with SIGKILL.
//!
//! [`command`] starts every child through `storebench exec-guarded`, which asks the kernel to kill it when its parent
//! dies, and to keep below it whatever it lets go of, and then becomes the child. [`ScratchDirectory`] has a process that
//! outlives us by a moment: it waits for the end of its standard input, which comes when we exit for whatever reason, and
//! then removes the run's directory.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{
    PTracer, Pid, Signal, getpid, getppid, set_child_subreaper, set_parent_process_death_signal, set_ptracer,
};

use crate::exit::Exit;

/// How long a directory may resist removal, while killed processes still write to it.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A command for a program that the kernel kills when this process dies. It runs in a process group of its own, so that a
/// Ctrl-C in the terminal reaches storebench alone, which then stops its children in order.
///
/// The kernel watches the thread that spawns: spawn from the main thread only.
pub(crate) fn command(program: &Path) -> anyhow::Result<Command> {
    if cfg!(test) {
        // The executable of unit tests is not storebench and cannot guard.
        let mut command = Command::new(program);
        command.process_group(0);
        return Ok(command);
    }
    let mut command = Command::new(own_executable()?);
    command.args(["exec-guarded", "--parent", &std::process::id().to_string(), "--"]).arg(program).process_group(0);
    Ok(command)
}

/// Errors: it is no longer there. Children of another build would measure otherwise than those before.
pub(crate) fn own_executable() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("the path of the storebench executable cannot be found")?;
    anyhow::ensure!(
        path.exists(),
        "{}: the executable of storebench was replaced or removed while it ran; with --save, what was measured is kept: go on \
         with --resume, or run it again",
        path.display()
    );
    Ok(path)
}

/// Runs `storebench exec-guarded`: never returns where it succeeds.
pub(crate) fn exec_guarded(parent: i32, command: &[OsString]) -> anyhow::Result<Exit> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("the kernel refuses a parent death signal")?;
    // A process that lost its parent, in whatever session, stays below: it is counted with the store that started it, and ends with that.
    set_child_subreaper(Some(getpid())).context("the kernel refuses to keep orphans below")?;
    // Where a process may trace only what is below it (Yama), the parent may trace this one, too, and so may what the parent starts. An error: there
    // is no such rule here.
    let _ = Pid::from_raw(parent).map(|parent| set_ptracer(PTracer::ProcessID(parent)));
    // Had the parent died before the line above, nobody would ever kill us.
    if getppid() != Pid::from_raw(parent) {
        anyhow::bail!("the parent process is gone");
    }
    let (program, arguments) = command.split_first().context("no program was given")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("{} cannot be started", program.display()))
}

/// Runs `storebench remove-when-orphaned`.
pub(crate) fn remove_when_orphaned(directory: &Path) -> anyhow::Result<Exit> {
    // Whatever ends the input, an error included, means that the parent is gone.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let deadline = Instant::now() + REMOVAL_TIMEOUT;
    loop {
        match std::fs::remove_dir_all(directory) {
            Ok(()) => return Ok(Exit::Passed),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Exit::Passed),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("{} cannot be removed", directory.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A directory that is removed when this value is dropped or this process dies.
#[derive(Debug)]
pub(crate) struct ScratchDirectory {
    path: PathBuf,
    remover: Child,
}

impl ScratchDirectory {
    /// Creates a directory with a new name below `parent`.
    pub(crate) fn create(parent: &Path) -> anyhow::Result<Self> {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let path = parent.join(format!("run-{}-{}", std::process::id(), clock.as_nanos()));
        // The remover first: a directory without one could stay behind.
        let remover = Command::new(own_executable()?)
            .arg("remove-when-orphaned")
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("the process that removes the data directory cannot be started")?;
        let scratch = Self { path, remover };
        std::fs::create_dir_all(&scratch.path).with_context(|| {
            format!("{}: cannot be created: choose another with --data-dir", scratch.path.display())
        })?;
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        // An error here means that it is already gone, and so is the directory.
        let _ = self.remover.wait();
    }
}
