//! The arms: who replicates, how he is started, and how he restores.

use super::child::{self, Child, Usage};
use super::place::Place;
use super::{Bench, PATIENCE, wrong};
use anyhow::Context as _;
use ltx::FileName;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use walsync::config::ConfigError;
use walsync::replica::Replica;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arm {
    /// Nobody replicates.
    Alone,
    Walsync,
    /// One process for all databases.
    Litestream,
    /// One for each, as a published comparison has it.
    LitestreamEach,
}

impl Arm {
    pub fn name(self) -> &'static str {
        match self {
            Arm::Alone => "alone",
            Arm::Walsync => "walsync",
            Arm::Litestream => "litestream",
            Arm::LitestreamEach => "litestream each",
        }
    }

    pub fn is_litestream(self) -> bool {
        matches!(self, Arm::Litestream | Arm::LitestreamEach)
    }
}

pub struct Litestream {
    pub program: PathBuf,
    pub version: String,
}

impl Litestream {
    /// The one that was named, which must be one; or the newest that `peers/fetch litestream` has installed; or that of PATH; or none.
    pub fn find(named: Option<&Path>) -> Result<Option<Litestream>, ConfigError> {
        if let Some(program) = named {
            let litestream = Litestream::ask(program.to_owned());
            let why = |error: anyhow::Error| wrong("--litestream", format!("{}: {error:#}", program.display()));
            return litestream.map_err(why).map(Some);
        }
        let installed = std::env::var_os("STOREBENCH_PEERS").map(PathBuf::from).or_else(|| {
            let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
            let data = data.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")))?;
            Some(data.join("storebench/peers"))
        });
        let versions = installed.and_then(|folder| fs::read_dir(folder.join("litestream")).ok()).into_iter().flatten();
        let mut versions: Vec<PathBuf> = versions.filter_map(|entry| Some(entry.ok()?.path())).collect();
        let numbers = |path: &PathBuf| -> Vec<u32> {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.split('.').filter_map(|part| part.parse().ok()).collect()
        };
        versions.sort_by_key(numbers);
        let installed = versions.into_iter().rev().map(|folder| folder.join("litestream"));
        Ok(installed.chain(["litestream".into()]).find_map(|program| Litestream::ask(program).ok()))
    }

    fn ask(program: PathBuf) -> anyhow::Result<Litestream> {
        let output = Command::new(&program).arg("version").output()?;
        anyhow::ensure!(output.status.success(), "`version`: {}", output.status);
        let version = String::from_utf8_lossy(&output.stdout).trim().trim_start_matches('v').to_owned();
        anyhow::ensure!(version.starts_with("0.5"), "is version {version:?}, and this compares with Litestream 0.5");
        Ok(Litestream { program, version })
    }
}

/// Databases that an arm replicates: files `0.db` and so on of a folder.
pub struct Run {
    pub arm: Arm,
    /// Of its folder, of its place in the store, and of its log.
    pub name: String,
    pub folder: PathBuf,
    pub count: u32,
    /// Between two uploads.
    pub interval: Duration,
}

impl Run {
    pub fn database(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number}.db"))
    }
}

impl Bench {
    /// A folder for an arm's databases.
    pub(super) fn new_run(&self, arm: Arm, what: &str, count: u32) -> anyhow::Result<Run> {
        let name = format!("{what}-{}", arm.name().replace(' ', "-"));
        let folder = self.folder.path().join(&name);
        fs::create_dir(&folder)?;
        Ok(Run { arm, name, folder, count, interval: self.options.interval })
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// What an arm is started with that is Litestream's: none is measured under its name without it.
    fn litestream(&self, arm: Arm) -> anyhow::Result<&Litestream> {
        let missing = || format!("there is no Litestream for the arm \"{}\": --litestream PATH names one", arm.name());
        self.litestream.as_ref().with_context(missing)
    }

    fn walsync() -> anyhow::Result<Command> {
        Ok(Command::new(std::env::current_exe().context("this executable")?))
    }

    /// Starts who replicates, into the run's place below `place`.
    pub(super) fn start(&self, run: &Run, place: &Place) -> anyhow::Result<Vec<Child>> {
        let log = self.log(&run.name);
        let interval = run.interval.as_millis().to_string();
        let numbers: Vec<Vec<u32>> = match run.arm {
            Arm::Alone => return Ok(Vec::new()),
            Arm::Walsync => {
                let mut command = Bench::walsync()?;
                command.arg("watch").arg(run.folder.join("*.db")).args(["--interval-millis", &interval]);
                command.arg("--staging-folder").arg(self.folder.path());
                place.for_walsync(&mut command, Some("--to"), &run.name);
                return Ok(vec![Child::start(&mut command, &log)?]);
            }
            Arm::Litestream => vec![(0..run.count).collect()],
            Arm::LitestreamEach => (0..run.count).map(|number| vec![number]).collect(),
        };
        let litestream = self.litestream(run.arm)?;
        let start = |(at, numbers): (usize, &Vec<u32>)| {
            let file = self.folder.path().join(format!("{}-{at}.yml", run.name));
            let mut text = "dbs:\n".to_owned();
            for number in numbers {
                let path = run.database(*number);
                let replica = place.in_litestream_yml(&format!("{}/{number}.db", run.name));
                let path = path.display();
                text += &format!("  - path: \"{path}\"\n    monitor-interval: {interval}ms\n");
                text += &format!("    replica: {{{replica}, sync-interval: {interval}ms}}\n");
            }
            fs::write(&file, text)?;
            Child::start(Command::new(&litestream.program).args(["replicate", "-config"]).arg(file), &log)
        };
        numbers.iter().enumerate().map(start).collect()
    }

    /// Starts it, and waits until each database is in the store.
    pub(super) fn start_durable(&self, run: &Run, place: &Place) -> anyhow::Result<Vec<Child>> {
        let mut children = self.start(run, place)?;
        if !children.is_empty() {
            let below = self.place.replica(&run.name, "")?;
            let patience = PATIENCE + Duration::from_millis(100) * run.count;
            let are_durable = self.comes(patience, || {
                children.iter_mut().try_for_each(Child::must_live)?;
                Ok(below.names_below()?.len() == run.count as usize)
            })?;
            anyhow::ensure!(are_durable, "{}: not every database was in the store after {patience:?}", run.name);
        }
        Ok(children)
    }

    /// Restores a database of a run by what an arm has for that. An error within: it could not.
    pub(super) fn restore(
        &self,
        by: Arm,
        run: &Run,
        number: u32,
        output: &Path,
    ) -> anyhow::Result<Result<Usage, String>> {
        let path = format!("{}/{number}.db", run.name);
        let mut command = match by {
            Arm::Alone => anyhow::bail!("the arm \"{}\" has nothing to restore with", by.name()),
            Arm::Litestream | Arm::LitestreamEach => {
                let mut command = Command::new(&self.litestream(by)?.program);
                command.args(["restore", "-o"]).arg(output).arg(self.place.for_litestream(&path));
                command
            }
            Arm::Walsync => {
                let mut command = Bench::walsync()?;
                command.arg("restore");
                self.place.for_walsync(&mut command, None, &path);
                command.arg("-o").arg(output);
                command
            }
        };
        let log = self.log(&format!("restore by {}", by.name()));
        let megabytes = self.options.megabytes.iter().max().copied().unwrap_or_default();
        child::run(&mut command, &log, PATIENCE * 5 + Duration::from_secs(1) * megabytes, &self.stop)
    }
}

/// Objects of a database, looked through as they come.
pub struct Objects {
    replica: Replica,
    after: Option<FileName>,
}

impl Objects {
    /// Those behind the newest of now; with `last` that one, too.
    pub fn behind(replica: Replica, last: bool) -> anyhow::Result<Objects> {
        let files = replica.files_after(0, None)?;
        let newest = files.len().checked_sub(1 + usize::from(last)).and_then(|at| files.get(at));
        let after = newest.map(|file| file.name);
        Ok(Objects { replica, after })
    }

    /// Whether something new is there.
    pub fn are_new(&mut self) -> anyhow::Result<bool> {
        let files = self.replica.files_after(0, self.after)?;
        self.after = files.last().map(|file| file.name).or(self.after);
        Ok(!files.is_empty())
    }

    /// Whether one that has come since the last look has these bytes, which lie in one page. Where an object is gone again, nobody knows.
    pub fn have(&mut self, bytes: &[u8]) -> anyhow::Result<bool> {
        let files = self.replica.files_after(0, self.after)?;
        self.after = files.last().map(|file| file.name).or(self.after);
        for file in files.iter().rev() {
            let mut found = false;
            // Who removes objects meanwhile is told by the restore.
            let _ = self.replica.read(file, |_, _, page| {
                found = found || page.windows(bytes.len()).any(|window| window == bytes);
                Ok(())
            });
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
