//! `restore`: a database of a replica, once or for as long as it is wanted.

use super::number::whole;
use super::{PlaceArgs, follow, stop, time, txid};
use clap::Args;
use service_kit::console::{self, OneLine};
use service_kit::duration::of_go;
use std::path::{Path, PathBuf};
use std::time::Duration;
use walsync::chain::Chain;
use walsync::config::ConfigError;
use walsync::replica::{RemoteFile, Replica};
use walsync::restore::{IntegrityCheck, RestoreError, Restored, Target, is_scratch, plan, restore};

#[derive(Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    pub(super) place: PlaceArgs,
    /// The database to make [default: the place, where that is the path of a database in the configuration]
    #[arg(short, long, value_name = "FILE", required_unless_present = "config")]
    output: Option<PathBuf>,
    /// Where there is a database already, leave it, and end well
    #[arg(long)]
    if_db_not_exists: bool,
    /// Where there is no replica yet, make nothing, and end well
    #[arg(long)]
    if_replica_exists: bool,
    /// The state after this transaction, in decimal digits, or in 16 hexadecimal digits as in names of files
    #[arg(long, value_name = "TXID", conflicts_with = "timestamp", value_parser = txid)]
    txid: Option<u64>,
    /// The newest state not after this time, as in 2026-11-22T13:00:00Z; `list` has those of all files
    #[arg(long, visible_alias = "time", value_name = "TIME", value_parser = moment)]
    timestamp: Option<jiff::Timestamp>,
    /// Ask SQLite for the integrity of the result before it gets its name, and say exactly what was restored
    #[arg(long)]
    prove: bool,
    /// Ask SQLite, without saying more: quick leaves out whether indexes have what their tables have
    #[arg(long, value_name = "MODE", conflicts_with = "prove")]
    integrity_check: Option<IntegrityCheck>,
    /// Say what would be restored from which files, and make nothing
    #[arg(long, conflicts_with = "follow")]
    dry_run: bool,
    /// Then keep it up to date until SIGTERM or SIGINT: a replica that others may read at any time, but not write. Where it was begun already,
    /// go on
    #[arg(short, long, requires = "output", conflicts_with_all = ["txid", "timestamp", "if_db_not_exists", "if_replica_exists"])]
    follow: bool,
    /// Between two looks for what is new, with --follow, in milliseconds
    #[arg(long, value_name = "MILLIS", default_value_t = 1000, requires = "follow", value_parser = whole::<u64>("milliseconds", 10..=u64::MAX))]
    follow_interval_millis: u64,
    /// Litestream's: the same, as in 1s or 500ms
    #[arg(long, value_name = "DURATION", requires = "follow", conflicts_with = "follow_interval_millis", value_parser = duration, hide = true)]
    follow_interval: Option<Duration>,
    /// Litestream's, without effect: eight requests fetch ahead, in bounded memory
    #[arg(long = "parallelism", value_name = "NUMBER", hide = true)]
    _parallelism: Option<u32>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = of_go(text).filter(|duration| *duration >= Duration::from_millis(10));
    duration.ok_or_else(|| "write it as 1s, 500ms or 1h30m, and no less than 10ms".into())
}

fn moment(text: &str) -> Result<jiff::Timestamp, String> {
    let remedy = "write it as 2026-11-22T13:00:00Z, with Z or an offset such as +01:00 behind it; `list` has the times";
    text.parse().map_err(|_| remedy.into())
}

impl RestoreArgs {
    pub(super) fn output(&self) -> Result<&Path, ConfigError> {
        match &self.output {
            Some(output) => Ok(output),
            None if !self.place.place.contains("://") => Ok(Path::new(&self.place.place)),
            None => {
                let problem = "is missing: with the URL of a replica, -o FILE says what to make".into();
                Err(ConfigError::Value { field: "output".into(), problem })
            }
        }
    }

    /// What SQLite is asked.
    pub(super) fn integrity_check(&self) -> IntegrityCheck {
        self.integrity_check.unwrap_or(self.prove.into())
    }

    pub(super) fn interval(&self) -> Duration {
        self.follow_interval.unwrap_or(Duration::from_millis(self.follow_interval_millis))
    }

    pub fn run(&self) -> anyhow::Result<()> {
        if self.follow {
            return follow::follow(self);
        }
        stop::on_signal(remove_scratches)?;
        let now = jiff::Timestamp::now();
        let target = match (self.txid, self.timestamp) {
            (Some(txid), _) => Target::Txid(txid),
            (None, Some(time)) if time > now => anyhow::bail!("{time} is in the future"),
            (None, Some(time)) => Target::Time { millis: time.as_millisecond(), now_millis: now.as_millisecond() },
            (None, None) => Target::Latest,
        };
        let (replica, output) = (self.place.replica()?, self.output()?);
        if self.if_db_not_exists && output.exists() {
            return Ok(console::print(format_args!(
                "{} is there already: nothing was restored\n",
                OneLine(output.display())
            ))?);
        }
        let done = if self.dry_run {
            plan(&replica, target).map(|(txid, files)| print_plan(output, &replica, txid, &files).map(|()| txid))
        } else {
            restore(&replica, target, output, self.integrity_check())
                .map(|restored| print_restored(self, &restored).map(|()| restored.txid))
        };
        match done {
            Ok(printed) => {
                let txid = printed?;
                if self.timestamp.is_some() { print_next(&replica, txid) } else { Ok(()) }
            }
            Err(RestoreError::Empty) if self.if_replica_exists => Ok(console::print(format_args!(
                "there is no replica yet: {} was not made\n",
                OneLine(output.display())
            ))?),
            Err(RestoreError::Empty) => Err(self.place.no_replica(&replica)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Says which state comes next that is known: what was asked for may lie between.
fn print_next(replica: &Replica, txid: u64) -> anyhow::Result<()> {
    let chain = Chain::new(replica.files()?);
    let next = chain.timed().find(|file| file.name.max_txid > txid);
    let line = match next.map(|next| (next.name.max_txid, replica.header(next))) {
        None => "it is the newest that the replica has".to_owned(),
        Some((next, header)) => {
            let committed = header.map_or("at no known time".into(), |header| time(header.timestamp_millis));
            let between = match next - txid {
                1 => String::new(),
                _ => "; of those between, merged or removed since, no state is known, nor when which was committed"
                    .to_owned(),
            };
            format!("the next known state: TXID {next}, committed {committed}{between}")
        }
    };
    Ok(console::print(format_args!("{line}\n"))?)
}

/// Removes what this process has begun to restore: it is found among its open files, so that it is nobody else's.
fn remove_scratches() {
    for file in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let path = std::fs::read_link(file.path()).unwrap_or_default();
        if path.file_name().is_some_and(|name| is_scratch(&name.to_string_lossy())) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Says what would be restored, and from which files.
fn print_plan(output: &Path, replica: &Replica, txid: u64, files: &[RemoteFile]) -> anyhow::Result<()> {
    let (output, bytes) =
        (OneLine(output.display()), files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size)));
    let count = files.len();
    console::print(format_args!(
        "would restore {output}: TXID {txid} ({txid:016x}), from {count} files, {bytes} bytes\n"
    ))?;
    for file in files {
        console::print(format_args!("{}\n", OneLine(replica.key(file.level, file.name))))?;
    }
    Ok(())
}

/// What is said of a page that no file has.
pub(super) fn unwritten(page: u32) -> String {
    format!(
        "page {page} is in no file that leads there, and zero unless a later one has it: right for a page that SQLite took and gave back at once; \
         Litestream restores no such replica"
    )
}

/// Says what was restored, and all of it where that is to be proved.
pub(super) fn print_restored(arguments: &RestoreArgs, restored: &Restored) -> anyhow::Result<()> {
    let (output, txid) = (OneLine(arguments.output()?.display()), restored.txid);
    console::print(format_args!(
        "restored {output}: TXID {txid} ({txid:016x}), committed {}\n",
        time(restored.time_millis)
    ))?;
    if let Some(page) = restored.unwritten {
        console::tell(OneLine(format_args!("walsync: {}", unwritten(page))));
    }
    if arguments.prove {
        console::print(format_args!("pages: {} of {} bytes\n", restored.pages, restored.page_size))?;
        for (file, checksum) in &restored.files {
            let file = OneLine(file);
            console::print(format_args!("file: {file}, checksum {checksum:016x} holds\n"))?;
        }
        console::print(format_args!(
            "chain: {} files, {} bytes, none missing\n",
            restored.files.len(),
            restored.bytes_read
        ))?;
    }
    if arguments.integrity_check() != IntegrityCheck::None {
        match &restored.integrity_unknown {
            None => console::print(format_args!("integrity check: ok\n"))?,
            Some(why) => console::print(format_args!(
                "integrity check: SQLite cannot be asked without the application ({why}); checksums alone prove it\n"
            ))?,
        }
    }
    Ok(())
}
