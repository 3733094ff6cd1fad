//! What process tests share: an application in a process of its own, walsync, Litestream.

// Each test binary uses a part of it.
#![allow(dead_code)]

pub mod conformance;
pub mod gateway;

use harness::{Process, command, folder, peer, until};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use walsync::clock::{Clock as _, SystemClock};
use walsync::restore::Target;
use walsync::store::memory::MemoryStore;
use walsync::store::{Attributes, Body, Object, Part, Store, StoreError};

/// An application: SQLite in a process of its own, for locks of one process do not see each other.
///
/// It is this test binary, run for the test `application_process`, which every binary that uses this has.
pub struct Application {
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The table of [`database`], and a row of it.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(v)";
pub const INSERT: &str = "INSERT INTO t VALUES (randomblob(3000))";

/// Makes a database of one row that nobody has open.
pub fn database(path: &Path) {
    let mut application = Application::start(path, TABLE);
    application.run(INSERT);
    application.close();
}

/// What a process has used: how busy the machine is changes neither by much.
#[derive(Debug)]
pub struct Cost {
    pub processor_ticks: u64,
    pub bytes_written: u64,
}

impl Cost {
    fn of(process: u32) -> Cost {
        let read = |file| std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap();
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let io = read("io");
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
        Cost {
            processor_ticks: fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap(),
            bytes_written: written.parse().unwrap(),
        }
    }
}

const PATH: &str = "WALSYNC_TEST_APPLICATION";

/// The body of the child: a line of SQL in, a line out.
pub fn application_process() {
    let path = std::env::var(PATH).expect("started by a test");
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        if let Some(start) = line.strip_prefix("!count ") {
            // One transaction a number, for ever; each number is printed once it is committed.
            let mut statement = connection.prepare("INSERT INTO t(id, v) VALUES (?1, randomblob(?2))").unwrap();
            for number in start.parse::<i64>().unwrap().. {
                statement.execute([number, 10 + number * 37 % 3000]).unwrap();
                println!("{number}");
            }
        }
        if let Some(count) = line.strip_prefix("!commit ") {
            // So many transactions, one row each.
            let mut statement = connection.prepare("UPDATE t SET v = randomblob(500) WHERE id = ?1").unwrap();
            for number in 0..count.parse::<i64>().unwrap() {
                statement.execute([1 + number * 7919 % 2000]).unwrap();
            }
            println!("ok");
            continue;
        }
        match connection.execute_batch(&line) {
            Ok(()) => println!("ok"),
            Err(error) => println!("error {error}"),
        }
    }
}

/// What a process says that reads table `t` of a database, and may write neither it nor its index.
pub fn read_without_writing(path: &Path) -> String {
    let mut command = command(std::env::current_exe().unwrap());
    command.args(["--exact", "application_process", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(PATH, walsync::database::sqlite_uri(path, "mode=ro&readonly_shm=1"));
    let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let child = process.child();
    writeln!(child.stdin.take().unwrap(), "SELECT count(*) FROM t").unwrap();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let lines = output.lines().skip_while(|line| !line.ends_with("ready"));
    lines.skip(1).find(|line| line.starts_with("ok") || line.starts_with("error")).unwrap_or_default().to_owned()
}

impl Application {
    /// Opens `path` in WAL mode, with SQL to begin with.
    pub fn start(path: &Path, sql: &str) -> Application {
        let mut command = command(std::env::current_exe().unwrap());
        command
            .args(["--exact", "application_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(PATH, path);
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let child = process.child();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut application = Application { process, input, output };
        // The test harness talks first.
        while !application.line().ends_with("ready") {}
        application.run("PRAGMA journal_mode=WAL");
        application.run(sql);
        application
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the application has died");
        line.trim_end().to_owned()
    }

    /// Runs SQL on one line.
    pub fn run(&mut self, sql: &str) {
        assert_eq!(self.try_run(sql), "ok", "{sql}");
    }

    /// Runs SQL, and gives what SQLite said.
    pub fn try_run(&mut self, sql: &str) -> String {
        writeln!(self.input, "{}", sql.replace('\n', " ")).unwrap();
        self.line()
    }

    /// Begins SQL, and waits for no answer: the next thing that is done to it is a kill.
    pub fn begin(&mut self, sql: &str) {
        writeln!(self.input, "{sql}").unwrap();
    }

    /// Commits so many transactions, which change rows 1 to 2000, without a pause. Gives what that cost the application.
    pub fn commit(&mut self, count: u32) -> Cost {
        let before = Cost::of(self.process.id());
        self.run(&format!("!commit {count}"));
        let after = Cost::of(self.process.id());
        Cost {
            processor_ticks: after.processor_ticks - before.processor_ticks,
            bytes_written: after.bytes_written - before.bytes_written,
        }
    }

    /// Commits numbers from `start` until it is killed.
    pub fn count_from(&mut self, start: i64) {
        writeln!(self.input, "!count {start}").unwrap();
    }

    /// Kills it, and gives the last number that it said was committed.
    pub fn kill(mut self) -> Option<i64> {
        self.process.kill();
        let mut last = None;
        for line in std::io::Read::by_ref(&mut self.output).lines() {
            last = line.ok().and_then(|line| line.parse().ok()).or(last);
        }
        last
    }

    /// Ends it as applications end.
    pub fn close(mut self) {
        drop(self.input);
        while let Ok(1..) = self.output.read_line(&mut String::new()) {}
        self.process.wait();
    }
}

/// The program.
pub fn walsync() -> Command {
    command(env!("CARGO_BIN_EXE_walsync"))
}

/// `walsync` in a process of its own.
pub struct Walsync {
    process: Process,
    log: PathBuf,
    /// Bytes of the log that are of processes before this one.
    before: usize,
}

impl Walsync {
    /// Watches databases into a folder, with uploads as often as tests want them.
    pub fn watch(databases: &[&Path], store: &Path, log: &Path) -> Walsync {
        Walsync::watch_each(50, databases, store, log)
    }

    /// Watches databases into a folder, with so long between two uploads.
    pub fn watch_each(interval_millis: u32, databases: &[&Path], store: &Path, log: &Path) -> Walsync {
        let mut command = walsync();
        command.arg("watch").args(databases).arg("--to").arg(store).arg("--interval-millis");
        command.arg(interval_millis.to_string());
        Walsync::start(command, log)
    }

    pub fn start(mut command: Command, log: &Path) -> Walsync {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let before = file.metadata().unwrap().len() as usize;
        let process = Process::start(command.env("NO_COLOR", "1").stderr(file));
        Walsync { process, log: log.to_owned(), before }
    }

    /// The last transaction ID that it called durable.
    pub fn durable(&self) -> u64 {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let txid = |line: &str| line.split_once("txid=")?.1.split(' ').next()?.parse().ok();
        log.lines().filter(|line| line.contains(" durable ")).filter_map(txid).max().unwrap_or(0)
    }

    /// Waits until it has called a transaction durable that is not before `txid`.
    pub fn wait_durable(&mut self, txid: u64) {
        until("a durable transaction", || {
            assert!(self.process.ended().is_none(), "{}", self.log());
            self.durable() >= txid
        });
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The most memory that it ever had.
    pub fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn kill(mut self) {
        self.process.kill();
    }

    /// A signal, such as one that stops its looking for a while: its locks stay.
    pub fn signal(&self, signal: rustix::process::Signal) {
        self.process.signal(signal);
    }

    /// SIGTERM; what is committed must be durable when it ends.
    pub fn stop(self) {
        let log = self.log.clone();
        let status = self.terminate();
        assert!(status.success(), "{status}: {}", std::fs::read_to_string(log).unwrap());
    }

    /// Asks it to end; how it did.
    pub fn terminate(mut self) -> std::process::ExitStatus {
        // Before that it has no handler for signals yet.
        until("its start", || ["watching", "following"].iter().any(|word| self.log()[self.before..].contains(word)));
        self.signal(rustix::process::Signal::TERM);
        self.process.wait()
    }
}

/// The newest state not after this time, asked for now.
pub fn time(millis: i64) -> Target {
    Target::Time { millis, now_millis: SystemClock::default().unix_millis() }
}

/// Litestream.
pub fn litestream() -> Command {
    command(peer("litestream", "litestream"))
}

/// What walsync restores from a place.
pub fn restored_by_walsync(place: impl AsRef<OsStr>) -> Vec<u8> {
    let folder = folder();
    let path = folder.path().join("restored.db");
    harness::output(walsync().arg("restore").arg(place).arg("-o").arg(&path));
    std::fs::read(path).unwrap()
}

/// Exit code and words of a verb.
pub fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code(), text)
}

/// What Litestream restores from a place.
pub fn restored_by_litestream(url: &str, arguments: &[&str]) -> Vec<u8> {
    let folder = folder();
    let path = folder.path().join("restored.db");
    // A proxy's certificates, which are not ours, would stop its S3 client.
    harness::output(
        litestream().args(["restore", "-o"]).arg(&path).args(arguments).arg(url).env_remove("AWS_CA_BUNDLE"),
    );
    std::fs::read(path).unwrap()
}

/// The database as SQLite has it: file and WAL together, read from a copy. Nobody may be writing.
pub fn content(path: &Path) -> Vec<u8> {
    let folder = folder();
    let copy = folder.path().join("copy.db");
    std::fs::copy(path, &copy).unwrap();
    let wal = walsync::database::with_suffix(path, "-wal");
    if wal.exists() {
        std::fs::copy(wal, folder.path().join("copy.db-wal")).unwrap();
    }
    let connection = rusqlite::Connection::open(&copy).unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let bytes = std::fs::read(&copy).unwrap();
    drop(connection);
    bytes
}

/// Whether a database is read whole at the moment.
pub fn is_read_whole(database: &Path) -> bool {
    let index =
        std::fs::File::options().read(true).write(true).open(walsync::database::with_suffix(database, "-shm")).unwrap();
    let mut mark_0 = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as i16,
        l_whence: nix::libc::SEEK_SET as i16,
        l_start: 123,
        l_len: 1,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&index, nix::fcntl::FcntlArg::F_OFD_GETLK(&mut mark_0)).unwrap();
    i32::from(mark_0.l_type) != nix::libc::F_UNLCK
}

/// A machine whose date is as it was set.
#[derive(Default)]
pub struct SetClock {
    machine: walsync::clock::SystemClock,
    unix_millis: std::sync::atomic::AtomicI64,
}

impl SetClock {
    pub fn set(&self, unix_millis: i64) {
        self.unix_millis.store(unix_millis, std::sync::atomic::Ordering::Relaxed);
    }
}

impl walsync::clock::Clock for SetClock {
    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }

    fn unix_millis(&self) -> i64 {
        self.unix_millis.load(std::sync::atomic::Ordering::Relaxed)
    }
}

type BeforePart = Box<dyn Fn(&MemoryStore, &str, u64) + Send + Sync>;

/// A store in memory with which somebody meddles just before each part of an object is read.
pub struct Meddled {
    store: Arc<MemoryStore>,
    before_part: BeforePart,
    before_get: Box<dyn Fn(&str) + Send + Sync>,
    before_create: Box<dyn Fn(&str) + Send + Sync>,
}

impl Meddled {
    /// `before_part` has the store, the key of the object, and where in it the part begins.
    pub fn new(
        store: Arc<MemoryStore>,
        before_part: impl Fn(&MemoryStore, &str, u64) + Send + Sync + 'static,
    ) -> Meddled {
        let nothing = || Box::new(|_: &str| {});
        Meddled { store, before_part: Box::new(before_part), before_get: nothing(), before_create: nothing() }
    }

    /// The same, with what is done just before an object is read whole, or its beginning; it has the key.
    pub fn before_get(self, before_get: impl Fn(&str) + Send + Sync + 'static) -> Meddled {
        Meddled { before_get: Box::new(before_get), ..self }
    }

    /// The same, with what is done just before an object is written.
    pub fn before_create(self, before_create: impl Fn(&str) + Send + Sync + 'static) -> Meddled {
        Meddled { before_create: Box::new(before_create), ..self }
    }
}

impl Store for Meddled {
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, with: &Attributes) -> Result<(), StoreError> {
        (self.before_create)(key);
        self.store.create(key, body, length, with)
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        (self.before_get)(key);
        self.store.get(key, range)
    }

    fn get_part(&self, key: &str, range: Range<u64>, version: Option<&str>) -> Result<Part, StoreError> {
        (self.before_part)(&self.store, key, range.start);
        self.store.get_part(key, range, version)
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        self.store.list_after(prefix, after)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.store.delete(key)
    }
}
