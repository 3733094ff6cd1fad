//! The program: reads its settings, opens its files, listens, runs.

use std::io::Read as _;
use std::net::{TcpListener, ToSocketAddrs as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;

use rsedis::memory::Allocator;
use rsedis::persistence::{Aof, recover};
use rsedis::reactor::epoll::{EpollSockets, Listener};
use rsedis::reactor::{Reactor, now_millis, users};
use rsedis::server::Server;
use rsedis::settings::{Settings, Start, read_command_line};
use rsedis::{hash, log};
use tikv_jemalloc_ctl::{Access as _, AsName as _};
use wal::files::RealDirectory;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    service_kit::panics::end_the_process();
    // Data are for their owner alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let words: Vec<String> = std::env::args().skip(1).collect();
    let version =
        format!("rsedis server v={} sha=00000000:0 malloc=jemalloc bits=64 build=0", env!("CARGO_PKG_VERSION"));
    let started = match read_command_line(&words, &version, read_file) {
        Ok(Start::Print(text)) => {
            log::notice(text.trim_end());
            return ExitCode::SUCCESS;
        }
        Ok(Start::Serve(settings)) => serve(*settings),
        Err(error) => Err(error),
    };
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::warning(format_args!("{error}"));
            ExitCode::FAILURE
        }
    }
}

fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    if path.as_os_str() != "-" {
        return std::fs::read(path);
    }
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    Ok(text)
}

/// Bytes allocated, by jemalloc's own count.
fn allocated() -> u64 {
    // Both fail only if jemalloc was built without counts; it is not.
    let _ = tikv_jemalloc_ctl::epoch::advance();
    // What threads keep for their next allocation counts as allocated there, and is not used. 4096 stands for all arenas.
    let kept: usize = b"stats.arenas.4096.tcache_bytes\0".name().read().unwrap_or(0);
    tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0).saturating_sub(kept) as u64
}

/// Bytes that this thread has allocated, less those that it has freed.
fn allocated_here() -> i64 {
    use tikv_jemalloc_ctl::thread::{ThreadLocal, allocatedp, deallocatedp};
    thread_local! {
        static COUNTS: Option<(ThreadLocal<u64>, ThreadLocal<u64>)> = allocatedp::read().ok().zip(deallocatedp::read().ok());
    }
    COUNTS.with(|counts| counts.map_or(0, |(allocated, freed)| allocated.get().wrapping_sub(freed.get()) as i64))
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
    // Before anything is touched: a port that is taken is the most common mistake.
    let listeners = listen(&settings)?;
    let (stop, stopped) = UnixStream::pair().map_err(|error| format!("make a socket pair: {error}"))?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        let stopped = stopped.try_clone().map_err(|error| format!("copy a socket: {error}"))?;
        signal_hook::low_level::pipe::register(signal, stopped).map_err(|error| format!("catch signals: {error}"))?;
    }
    let mut server = Server::new(settings, now_millis(), random[4]);
    server.executable = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    load_users(&mut server)?;
    let aof = match server.settings.is_yes("appendonly") {
        true => Some(open(&mut server)?),
        false => {
            load(&mut server)?;
            None
        }
    };
    let socket_file = server.settings.text("unixsocket").to_owned();
    let sockets = EpollSockets::new(listeners, stop).map_err(|error| format!("epoll: {error}"))?;
    let (port, pid) = (server.settings.text("port"), std::process::id());
    log::notice(format_args!("rsedis {} ready on port {port}, process {pid}", env!("CARGO_PKG_VERSION")));
    let allocator = Allocator { total: allocated, own: allocated_here };
    let ended = Reactor::new(sockets, server, aof, |path| RealDirectory::open(path), allocator).run();
    if !socket_file.is_empty() {
        // Whoever starts the next server replaces it if it is still there.
        drop(std::fs::remove_file(&socket_file));
    }
    ended
}

/// The users of the settings, or of their file.
fn load_users(server: &mut Server) -> Result<(), String> {
    let configured = server.settings.users.clone();
    if !configured.is_empty() && !server.settings.text("aclfile").is_empty() {
        return Err("users are defined in the configuration and in aclfile: define them in one of both".to_owned());
    }
    for (name, rules) in configured {
        // What the file says of the default user is all of it.
        let reset = (name.as_bytes() == rsedis::acl::DEFAULT).then_some(b"reset".as_slice());
        let rules: Vec<&[u8]> = reset.into_iter().chain(rules.iter().map(String::as_bytes)).collect();
        server.users.set(name.as_bytes(), &rules).map_err(|error| format!("user {name}: {error}"))?;
    }
    users::load(server, |path| RealDirectory::open(path), None)
}

/// As many files as clients may be, and some for the server itself; where the system allows fewer, fewer clients are taken.
fn raise_file_limit(settings: &mut Settings) -> Result<(), String> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    const OWN_FILES: u64 = 32;
    let wanted = settings.integer("maxclients").max(0) as u64 + OWN_FILES;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            log::warning(format_args!("raise the limit of open files: {error}"));
        }
    }
    let Some(allowed) = getrlimit(Resource::Nofile).current.filter(|allowed| *allowed < wanted) else { return Ok(()) };
    let clients = allowed.saturating_sub(OWN_FILES);
    if clients == 0 {
        return Err(format!(
            "the system allows {allowed} open files: {} or more are needed (ulimit -n)",
            OWN_FILES + 1
        ));
    }
    log::warning(format_args!(
        "the system allows {allowed} open files: maxclients is {clients} instead of {} (ulimit -n)",
        settings.text("maxclients")
    ));
    let Some(place) = rsedis::settings::find(b"maxclients") else { return Ok(()) };
    settings.set(place, &[clients.to_string()])
}

/// Replays the append-only file into the server.
fn open(server: &mut Server) -> Result<Aof<RealDirectory>, String> {
    let settings = &server.settings;
    let folder = Path::new(settings.text("dir")).join(settings.text("appenddirname"));
    let directory = RealDirectory::open(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let opened = recover::replay(server, directory);
    server.dirty = 0;
    server.stats = Default::default();
    let (aof, loaded) = opened.map_err(|error| format!("{}: {error}", folder.display()))?;
    if loaded.cut_bytes > 0 {
        let bytes = loaded.cut_bytes;
        log::warning(format_args!(
            "{}: the last file ended in the middle of a command: {bytes} bytes were cut",
            folder.display()
        ));
    }
    log::notice(format_args!("rsedis: replayed {} commands", loaded.commands));
    Ok(aof)
}

/// Reads the RDB file, if there is one.
fn load(server: &mut Server) -> Result<(), String> {
    let folder = Path::new(server.settings.text("dir")).to_path_buf();
    let name = server.settings.text("dbfilename").to_owned();
    if !folder.join(&name).exists() {
        return Ok(());
    }
    let directory = RealDirectory::open(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    recover::load_rdb(server, &directory, &name).map(drop)
}

/// One listener for each address of `bind`; one that begins with `-` may be missing.
fn listen(settings: &Settings) -> Result<Vec<Listener>, String> {
    let port = settings.integer("port") as u16;
    let mut listeners = Vec::new();
    let path = settings.text("unixsocket");
    if !path.is_empty() {
        listeners
            .push(listen_at(path, settings).map_err(|error| format!("Failed opening Unix socket {path}: {error}"))?);
    }
    if port == 0 && !listeners.is_empty() {
        return Ok(listeners);
    }
    for word in settings.text("bind").split_whitespace() {
        let (address, may_fail) = word.strip_prefix('-').map_or((word, false), |rest| (rest, true));
        let host = match address {
            "*" => "0.0.0.0",
            "::*" => "::",
            address => address,
        };
        let failed = |error: std::io::Error| format!("Failed listening on port {port} ({address}): {error}");
        let bound = (host, port).to_socket_addrs().and_then(|addresses| bind(addresses, settings));
        match bound {
            Ok(listener) => listeners.push(Listener::Tcp(listener)),
            Err(error) if may_fail && error.kind() == std::io::ErrorKind::AddrNotAvailable => {}
            Err(error) => return Err(failed(error)),
        }
    }
    match listeners.is_empty() {
        true => Err(format!("Failed listening on port {port}: bind names no address")),
        false => Ok(listeners),
    }
}

/// A socket as a file. One that is there is from a server that has ended.
fn listen_at(path: &str, settings: &Settings) -> std::io::Result<Listener> {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let mode = settings.text("unixsocketperm");
    if mode != "0" {
        let mode = u32::from_str_radix(mode, 8)
            .map_err(|_| std::io::Error::other(format!("unixsocketperm {mode}: octal digits only, such as 770")))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(Listener::Unix(listener, path.to_owned()))
}

fn bind(addresses: impl Iterator<Item = std::net::SocketAddr>, settings: &Settings) -> std::io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt};
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let attempt = || -> std::io::Result<TcpListener> {
            let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            if address.is_ipv6() {
                sockopt::set_ipv6_v6only(&socket, true)?;
            }
            bind(&socket, &address)?;
            listen(&socket, settings.integer("tcp-backlog") as i32)?;
            Ok(socket.into())
        };
        match attempt() {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}
