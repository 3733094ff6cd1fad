//! The program that the other tests start: a register store, one member for each process. Clients say a line and get a line.
//!
//! | request | answers |
//! | --- | --- |
//! | `put KEY VALUE` | `ok INDEX`, `busy`, `unknown`, `notleader ID` (0: not known) |
//! | `get LEVEL KEY` | `value VALUE INDEX`, `none INDEX`, `failed` |
//! | `status` | `ROLE TERM APPLIED` |
//!
//! `LEVEL` is `linearizable`, `lease` or `eventual`. Where it listens it writes into its directory, and finds the others there: no
//! port is fixed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use std::{env, fs, process, thread};

use bytes::Bytes;
use futures::executor::block_on;
use replog::runtime::identity::Begun;
use replog::runtime::tcp::{Peers, Tcp, TcpOptions};
use replog::runtime::{Committed, Handle, Limits, Member, Origin, ProposeError, Start};
use replog::{Entry, Membership, ReadLevel, RestoreError, Settings, SnapshotView, StateMachine};
use wal::files::RealDirectory;

const GROUP: u64 = 0x7265_676c;

/// Elections are short, so that many happen.
pub fn settings() -> Settings {
    Settings {
        tick_micros: 10_000,
        heartbeat_ticks: 4,
        election_ticks: 40,
        snapshot_entries: 2_000,
        snapshot_keep_entries: 500,
        ..Settings::default()
    }
}

type Rows = BTreeMap<String, String>;

/// Registers.
#[derive(Default)]
struct Registers {
    staged: Vec<(String, String)>,
    rows: Arc<RwLock<Rows>>,
}

impl StateMachine for Registers {
    type Reply = ();

    fn apply(&mut self, entry: &Entry) {
        let text = String::from_utf8_lossy(&entry.data);
        if let Some((key, value)) = text.split_once(' ') {
            self.staged.push((key.to_owned(), value.to_owned()));
        }
    }

    fn applied(&mut self, _: u64) {
        self.rows.write().unwrap().extend(self.staged.drain(..));
    }

    fn snapshot(&self) -> SnapshotView {
        let mut rows = self.rows.read().unwrap().clone();
        rows.extend(self.staged.iter().cloned());
        Box::new(move |to| rows.iter().try_for_each(|(key, value)| writeln!(to, "{key} {value}")))
    }

    fn restore(&mut self, snapshot: &mut dyn Read) -> Result<(), RestoreError> {
        let mut text = String::new();
        snapshot.read_to_string(&mut text)?;
        let rows = text.lines().filter_map(|line| line.split_once(' '));
        self.staged.clear();
        *self.rows.write().unwrap() = rows.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Ok(())
    }
}

/// Where a member's file of that name is.
pub fn file(root: &Path, id: u64, name: &str) -> PathBuf {
    root.join(id.to_string()).join(name)
}

fn publish(root: &Path, id: u64, name: &str, address: SocketAddr) {
    let (path, new) = (file(root, id, name), file(root, id, &format!("{name}.new")));
    fs::write(&new, address.to_string()).unwrap();
    fs::rename(new, path).unwrap();
}

/// Nothing, unless it is started as a member.
#[test]
#[ignore = "is the program that other tests start"]
fn serve() {
    let Ok(root) = env::var("REPLOG_MEMBER_ROOT") else { return };
    let number = |name: &str| env::var(name).unwrap().parse::<u64>().unwrap();
    let (root, id, members) = (PathBuf::from(root), number("REPLOG_MEMBER_ID"), number("REPLOG_MEMBERS"));
    let outcome = run(&root, id, members);
    eprintln!("{outcome}");
    process::exit(1);
}

/// Runs until it cannot go on, and says why.
fn run(root: &Path, id: u64, members: u64) -> String {
    let directory = |name: &str| RealDirectory::open(file(root, id, name));
    let (wal, snapshots) = match (directory("wal"), directory("snapshots")) {
        (Ok(wal), Ok(snapshots)) => (wal, snapshots),
        (Err(error), _) | (_, Err(error)) => return error.to_string(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let transport = Tcp::new(TcpOptions::new(id, GROUP, vec![listener], BTreeMap::new()));
    let peers = transport.peers();
    let machine = Registers::default();
    let rows = Arc::clone(&machine.rows);
    let started = Member::start(Start {
        id,
        settings: settings(),
        limits: Limits::default(),
        wal_options: wal::Options { segment_bytes: 1 << 20, first_segment_bytes: 256 << 10, sync: true },
        machine,
        wal,
        snapshots,
        origin: Origin::Found(Membership::of(1..=members)),
        begun: Begun::unwritten(),
        transport: Box::new(transport),
    });
    let member = match started {
        Ok(member) => member,
        Err(error) => return error.to_string(),
    };
    publish(root, id, "peer", address);
    let of_thread = root.to_path_buf();
    thread::spawn(move || find_peers(&of_thread, id, members, &peers));
    let clients = TcpListener::bind("127.0.0.1:0").unwrap();
    publish(root, id, "client", clients.local_addr().unwrap());
    let handle = member.handle();
    thread::spawn(move || {
        for socket in clients.incoming().flatten() {
            let (handle, rows) = (handle.clone(), Arc::clone(&rows));
            thread::spawn(move || answer_all(socket, &handle, &rows));
        }
    });
    member.wait().map_or_else(|error| error.to_string(), |()| "stopped".into())
}

/// Members that start again listen elsewhere.
fn find_peers(root: &Path, id: u64, members: u64, peers: &Peers) {
    loop {
        for other in (1..=members).filter(|other| *other != id) {
            if let Ok(address) = fs::read_to_string(file(root, other, "peer")) {
                peers.set(other, Some(&address)).unwrap();
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn answer_all(socket: TcpStream, handle: &Handle<()>, rows: &RwLock<Rows>) {
    let _ = socket.set_nodelay(true);
    let Ok(mut out) = socket.try_clone() else { return };
    for line in BufReader::new(socket).lines() {
        let Ok(line) = line else { return };
        let answer = answer(&line, handle, rows);
        if writeln!(out, "{answer}").is_err() {
            return;
        }
    }
}

fn answer(line: &str, handle: &Handle<()>, rows: &RwLock<Rows>) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["put", key, value] => match handle.propose_blocking(Bytes::from(format!("{key} {value}"))) {
            Ok(Committed { index, .. }) => format!("ok {index}"),
            Err(ProposeError::NotLeader(leader)) => format!("notleader {}", leader.unwrap_or_default()),
            Err(ProposeError::Busy) => "busy".into(),
            // A member that has ended may have been ending when it took the command.
            Err(ProposeError::Unknown | ProposeError::Stopped | ProposeError::TooLarge(_)) => "unknown".into(),
        },
        ["get", level, key] => {
            let level = match level {
                "linearizable" => ReadLevel::Linearizable,
                "lease" => ReadLevel::Lease,
                "eventual" => ReadLevel::Eventual,
                other => return format!("no such level: {other}"),
            };
            match block_on(handle.look(level, 0, || rows.read().unwrap().get(key).cloned())) {
                Ok((ticket, Some(value))) => format!("value {value} {}", ticket.index),
                Ok((ticket, None)) => format!("none {}", ticket.index),
                Err(_) => "failed".into(),
            }
        }
        ["status"] => {
            let status = handle.status();
            format!("{:?} {} {}", status.role, status.term, status.applied)
        }
        _ => "what?".into(),
    }
}
