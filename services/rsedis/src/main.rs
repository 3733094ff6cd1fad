//! The program: reads its settings, opens its files, listens, runs.

mod allocator;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use rsedis::clock::now_millis;
use rsedis::file_limit::{self, Allowed, OWN_FILES};
use rsedis::keyspace::Database;
use rsedis::metrics::{self, Metrics};
use rsedis::persistence::{Aof, beginning, rdb_file, recover};
use rsedis::reactor::epoll::EpollSockets;
use rsedis::reactor::listening::listen;
use rsedis::reactor::{Opens, Reactor, users};
use rsedis::server::Server;
use rsedis::settings::{Outside, Settings, Start, list_files, read_command_line};
use rsedis::tls::Tls;
use rsedis::{acl, command, hash, log};
use wal::files::{Directory as _, RealDirectory};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    service_kit::panics::end_the_process();
    // Data are for their owner alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let words: Vec<String> = std::env::args().skip(1).collect();
    let version =
        format!("rsedis server v={} sha=00000000:0 malloc=jemalloc bits=64 build=0", env!("CARGO_PKG_VERSION"));
    let outside =
        Outside { read: &read_file, list: &list_files, check_user: acl::check_user, is_command: command::is_own_name };
    let started = match read_command_line(&words, &version, outside) {
        Ok(Start::Print(text)) => {
            // Nobody needs to listen.
            drop(writeln!(std::io::stdout(), "{}", text.trim_end()));
            return ExitCode::SUCCESS;
        }
        Ok(Start::Serve(settings)) => serve(*settings),
        Err(error) => Err(error),
    };
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::failure(&error);
            ExitCode::FAILURE
        }
    }
}

/// Opens a directory that it locks. An error names what cannot be opened: the directory, or the lock in it.
fn open_alone(path: &Path) -> std::io::Result<RealDirectory> {
    RealDirectory::open(path).map_err(|error| {
        let place = if path.is_dir() { path.join(RealDirectory::LOCK) } else { path.to_owned() };
        std::io::Error::new(error.kind(), format!("{}: {error}", place.display()))
    })
}

fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    if path.as_os_str() != "-" {
        return std::fs::read(path);
    }
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    Ok(text)
}

fn random_words() -> std::io::Result<[u64; 5]> {
    let mut bytes = [0; 40];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut words = [0; 5];
    for (word, piece) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = piece.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    Ok(words)
}

fn serve(mut settings: Settings) -> Result<(), String> {
    let random = random_words().map_err(|error| format!("read /dev/urandom: {error}"))?;
    hash::seed([random[0], random[1], random[2], random[3]]);
    raise_file_limit(&mut settings)?;
    log::set_level(settings.text("loglevel"));
    let log_file = settings.text("logfile");
    if !log_file.is_empty() {
        log::append_to(Path::new(log_file)).map_err(|error| format!("Can't open the log file {log_file}: {error}"))?;
    }
    check_directory(&settings)?;
    show_whole_path(&mut settings)?;
    let tls = Tls::open(&settings).map_err(|error| format!("Failed to configure TLS: {error}"))?;
    // Before anything is touched: a port that is taken is the most common mistake.
    let listeners = listen(&settings)?;
    let metrics = serve_metrics(&settings)?;
    let (port, process) = (settings.text("port"), std::process::id());
    log::notice(format_args!("rsedis {} is starting, port: {port}, PID: {process}", env!("CARGO_PKG_VERSION")));
    let idle = settings.without_effect();
    if !idle.is_empty() {
        log::notice(format_args!("Without effect in this server: {}", idle.join(", ")));
    }
    let process_file = keep_process_number(&settings);
    remove_left(&settings);
    // As in Redis: who has started it may log out.
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::default())
        .map_err(|error| format!("ignore SIGHUP: {error}"))?;
    let stops = [catch(signal_hook::consts::SIGTERM)?, catch(signal_hook::consts::SIGINT)?];
    command::rename(settings.renames.clone());
    let mut server = Server::new(settings, now_millis(), random[4]);
    server.tls = tls;
    server.metrics = metrics;
    server.executable = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    load_users(&mut server)?;
    let socket_file = server.settings.text("unixsocket").to_owned();
    let sockets = EpollSockets::new(listeners, stops).map_err(|error| format!("epoll: {error}"))?;
    let opens = Opens { own: open_alone, shared: |path| RealDirectory::shared(path) };
    let mut reactor = Reactor::new(sockets, server, opens, allocator::JEMALLOC);
    // Who asks meanwhile is answered: the reactor has the sockets.
    let aof = match reactor.server.settings.is_yes("appendonly") {
        true => Some(open(&mut reactor.server)?),
        false => {
            load(&mut reactor.server)?;
            None
        }
    };
    log::notice("Ready to accept connections");
    let ended = reactor.run(aof);
    for file in [socket_file, process_file].iter().filter(|file| !file.is_empty()) {
        // Whoever starts the next server replaces it if it is still there.
        drop(std::fs::remove_file(file));
    }
    ended
}

/// Answers `/metrics` from now on, if that is asked for.
fn serve_metrics(settings: &Settings) -> Result<Option<Arc<Metrics>>, String> {
    let address = settings.text("metrics-listen");
    if address.is_empty() {
        return Ok(None);
    }
    let told = |error: std::io::Error| format!("Failed listening on metrics-listen {address}: {error}");
    let metrics = Arc::new(Metrics::new(settings.databases()));
    metrics::serve(TcpListener::bind(address).map_err(told)?, Arc::clone(&metrics)).map_err(told)?;
    Ok(Some(metrics))
}

/// CONFIG GET shows the whole path of the directory for data, and CONFIG REWRITE keeps it, as in Redis.
fn show_whole_path(settings: &mut Settings) -> Result<(), String> {
    let text = settings.text("dir").to_owned();
    let path = std::fs::canonicalize(&text).map_err(|error| format!("dir {text}: {error}"))?;
    match (rsedis::settings::find(b"dir"), path.to_str()) {
        (Some(place), Some(path)) => settings.set(place, &[path.to_owned()]),
        _ => Ok(()),
    }
}

/// Writes the process's number into `pidfile`, and gives that name back if it is there. Without it the server can do its work.
fn keep_process_number(settings: &Settings) -> String {
    let path = settings.text("pidfile").to_owned();
    if path.is_empty() {
        return path;
    }
    match std::fs::write(&path, format!("{}\n", std::process::id())) {
        Ok(()) => path,
        Err(error) => {
            log::warning(format_args!("Failed to write PID file {path}: {error}"));
            String::new()
        }
    }
}

/// What a byte comes from when the signal does.
fn catch(signal: i32) -> Result<UnixStream, String> {
    let (caught, catcher) = UnixStream::pair().map_err(|error| format!("make a socket pair: {error}"))?;
    signal_hook::low_level::pipe::register(signal, catcher).map_err(|error| format!("catch signals: {error}"))?;
    Ok(caught)
}

/// Errors: the directory for data is not there, or takes no files where some are to be written.
fn check_directory(settings: &Settings) -> Result<(), String> {
    let text = settings.text("dir");
    let directory = Path::new(text);
    let told = |error: &dyn std::fmt::Display| format!("dir {text}: {error}");
    match std::fs::metadata(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(told(&"there is no such directory: create it, or name another with dir"));
        }
        Err(error) => return Err(told(&error)),
        Ok(found) if !found.is_dir() => return Err(told(&"it is no directory: name another with dir")),
        Ok(_) => {}
    }
    if !settings.is_yes("appendonly") && settings.text("save").is_empty() {
        return Ok(());
    }
    // Asking for rights is not enough: root has them all, and a file system may be read-only, full, or none of the disk's.
    let probe = directory.join(format!("temp-probe-{}", std::process::id()));
    let made = std::fs::File::create_new(&probe).and_then(|_| std::fs::remove_file(&probe));
    made.map_err(|error| {
        told(&format_args!(
            "no files can be made in it: {error}: give the server's user the right to, or name another with dir"
        ))
    })
}

/// The users of the settings, or of their file.
fn load_users(server: &mut Server) -> Result<(), String> {
    let configured = server.settings.users.clone();
    if !configured.is_empty() && !server.settings.text("aclfile").is_empty() {
        return Err("users are defined in the configuration and in aclfile: define them in one of both".to_owned());
    }
    server.users.configure(&configured)?;
    users::load(server, |path| RealDirectory::shared(path), None)
}

/// As many files as clients may be, and some for the server itself; where the system allows fewer, fewer clients are taken.
fn raise_file_limit(settings: &mut Settings) -> Result<(), String> {
    let wanted = settings.integer("maxclients");
    let Allowed { clients, files } = file_limit::raise_for(wanted);
    if clients == wanted {
        return Ok(());
    }
    if clients == 0 {
        return Err(format!("the system allows {files} open files: {} or more are needed (ulimit -n)", OWN_FILES + 1));
    }
    log::warning(format_args!(
        "the system allows {files} open files: maxclients is {clients} instead of {wanted} (ulimit -n)"
    ));
    let Some(place) = rsedis::settings::find(b"maxclients") else { return Ok(()) };
    settings.set(place, &[clients.to_string()])
}

/// Replays the append-only file into the server.
fn open(server: &mut Server) -> Result<Aof<RealDirectory>, String> {
    let settings = &server.settings;
    let folder = Path::new(settings.text("dir")).join(settings.text("appenddirname"));
    let directory = open_alone(&folder).map_err(|error| error.to_string())?;
    let (beside, name) = (Path::new(settings.text("dir")), settings.text("appendfilename"));
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    if beginning::take_over(&directory, beside, &folder, name).map_err(|error| told(&error))? {
        log::notice(format_args!("Successfully migrated an old-style AOF into the AOF directory: {name}"));
    }
    warn_of_unread_dump(settings, &directory).map_err(|error| told(&error))?;
    let began = Instant::now();
    let opened = recover::replay(server, directory);
    server.dirty = 0;
    server.stats = Default::default();
    let (aof, loaded) = opened.map_err(|error| told(&error))?;
    if loaded.cut_bytes > 0 {
        let bytes = loaded.cut_bytes;
        log::warning(format_args!(
            "{}: the last file ended in the middle of a command: {bytes} bytes were cut",
            folder.display()
        ));
    }
    let keys: usize = server.databases.iter().map(Database::len).sum();
    let (seconds, commands) = (began.elapsed().as_secs_f64(), loaded.commands);
    log::notice(format_args!(
        "DB loaded from append only file: {seconds:.3} seconds, keys: {keys}, commands behind the base: {commands}"
    ));
    Ok(aof)
}

/// An append-only file that is begun is empty, whatever the RDB file holds (as in Redis, which says nothing).
fn warn_of_unread_dump(settings: &Settings, directory: &RealDirectory) -> std::io::Result<()> {
    let dump = Path::new(settings.text("dir")).join(settings.text("dbfilename"));
    let is_begun = directory.names()?.contains(&format!("{}.manifest", settings.text("appendfilename")));
    if !is_begun && dump.metadata().is_ok_and(|found| found.len() > 0) {
        log::warning(format_args!(
            "{} is not read, since appendonly is yes and there is no append-only file yet, and the next save replaces it: to keep its keys, \
             start with --appendonly no, and then CONFIG SET appendonly yes",
            dump.display()
        ));
    }
    Ok(())
}

fn open_shared(folder: &Path) -> Result<RealDirectory, String> {
    RealDirectory::shared(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Room that servers have left taken which were killed while they wrote the RDB file.
fn remove_left(settings: &Settings) {
    let is_alive = |process: u32| process != std::process::id() && Path::new(&format!("/proc/{process}")).exists();
    let Ok(directory) = open_shared(Path::new(settings.text("dir"))) else { return };
    for file in rdb_file::remove_left(&directory, settings.text("dbfilename"), is_alive) {
        log::notice(format_args!("{file}: removed: a server was killed while it wrote that"));
    }
}

/// Reads the RDB file, if there is one.
fn load(server: &mut Server) -> Result<(), String> {
    let folder = Path::new(server.settings.text("dir")).to_path_buf();
    let name = server.settings.text("dbfilename").to_owned();
    // Any other error, and a link that leads nowhere, is told below.
    let found = std::fs::symlink_metadata(folder.join(&name));
    if found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(());
    }
    let directory = open_shared(&folder)?;
    let began = Instant::now();
    let loaded =
        recover::load_rdb(server, &directory, &name).map_err(|error| format!("{}/{error}", folder.display()))?;
    if loaded.is_some() {
        let (keys, expired) = (server.load.keys, server.load.expired_keys);
        log::notice(format_args!("Done loading RDB, keys loaded: {keys}, keys expired: {expired}."));
        log::notice(format_args!("DB loaded from disk: {:.3} seconds", began.elapsed().as_secs_f64()));
    }
    Ok(())
}
