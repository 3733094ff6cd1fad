//! Stands before every member of a store that is to be cut off: clients and other members dial addresses of ours on loopback, and what they say is
//! passed on, unless its way crosses the cut.
//!
//! Each member has an address of its own (127.0.0.2, 127.0.0.3, …), at which we listen at the ports at which the member itself listens at 127.0.0.1.
//! Who dials a member is found in `/proc`, so that a member is cut off from others in both directions. What crosses the cut is held back and not
//! lost, as what a network sends again; a connection that is dialled meanwhile is taken, and gets no answer before the cut is over. One thread.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use bench_jobs::net::connected::connections_of;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes passed on at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// The address at which others find a member.
pub(super) fn host(ordinal: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + 1 + ordinal)
}

/// Who is cut off.
#[derive(Debug)]
struct Cut {
    member: usize,
    process: u32,
    /// Connections that the member has dialled: both ends, its own first.
    dialled: Mutex<BTreeSet<(SocketAddr, SocketAddr)>>,
}

impl Cut {
    fn crosses(&self, way: &Way) -> bool {
        let dialled = || self.dialled.lock().unwrap_or_else(PoisonError::into_inner).contains(&(way.from, way.to));
        self.member == way.member || dialled()
    }

    /// Looks who has dialled what was not there when the cut began.
    fn sees(&self, way: &Way) {
        if self.member != way.member && connections_of(self.process).contains(&(way.from, way.to)) {
            self.dialled.lock().unwrap_or_else(PoisonError::into_inner).insert((way.from, way.to));
        }
    }
}

type State = Option<Arc<Cut>>;

/// One connection.
#[derive(Clone, Copy, Debug)]
struct Way {
    from: SocketAddr,
    to: SocketAddr,
    /// Whose member it leads to.
    member: usize,
}

/// All that stands before the members of a store. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Relay {
    state: watch::Sender<State>,
}

impl Relay {
    /// Listens for each of these: a member, where others dial, and where the member listens.
    pub(super) fn start(routes: Vec<(usize, SocketAddr, SocketAddr)>) -> anyhow::Result<Self> {
        let mut listeners = Vec::with_capacity(routes.len());
        for (member, at, target) in routes {
            let listener = StdTcpListener::bind(at).with_context(|| format!("a relay cannot listen at {at}"))?;
            listener.set_nonblocking(true)?;
            listeners.push((member, listener, target));
        }
        let (sender, state) = watch::channel(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        std::thread::Builder::new().name("relay".into()).spawn(move || {
            let mut end = state.clone();
            runtime.block_on(async move {
                for (member, listener, target) in listeners {
                    tokio::spawn(listen(member, listener, target, state.clone()));
                }
                // An error: whoever could cut is gone.
                while end.changed().await.is_ok() {}
            });
        })?;
        Ok(Self { state: sender })
    }

    /// From now on nothing comes through to a member, which is this process, or from it.
    pub(super) fn cut(&self, member: usize, process: u32) {
        let dialled = Mutex::new(connections_of(process));
        self.state.send_replace(Some(Arc::new(Cut { member, process, dialled })));
    }

    /// From now on all comes through.
    pub(super) fn heal(&self) {
        self.state.send_replace(None);
    }
}

async fn listen(member: usize, listener: StdTcpListener, target: SocketAddr, state: watch::Receiver<State>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        // An error concerns one connection that was not made, or files that are all open, which ends by itself.
        let Ok((client, from)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            continue;
        };
        let Ok(to) = client.local_addr() else { continue };
        let way = Way { from, to, member };
        if let Some(cut) = state.borrow().as_ref() {
            cut.sees(&way);
        }
        // Who breaks a connection breaks the other half of it.
        let state = state.clone();
        tokio::spawn(async move { pass_on(client, target, way, state).await.ok() });
    }
}

/// Waits until a connection crosses no cut. An error: the relay ends.
async fn is_open(state: &mut watch::Receiver<State>, way: &Way) -> io::Result<()> {
    let open = state.wait_for(|cut| cut.as_ref().is_none_or(|cut| !cut.crosses(way))).await;
    open.map(drop).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

async fn pass_on(client: TcpStream, target: SocketAddr, way: Way, mut state: watch::Receiver<State>) -> io::Result<()> {
    is_open(&mut state, &way).await?;
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::try_join!(copy(from_client, to_server, way, state.clone()), copy(from_server, to_client, way, state))?;
    Ok(())
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: Way,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        is_open(&mut state, &way).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream as StdTcpStream;
    use std::time::Duration;

    /// A member that answers with what it is asked, at a port of loopback.
    fn echo() -> SocketAddr {
        let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 100];
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        stream.write_all(&buffer[..read]).unwrap();
                    }
                });
            }
        });
        address
    }

    fn connect(address: SocketAddr) -> StdTcpStream {
        let stream = StdTcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    fn answers(stream: &mut StdTcpStream) -> String {
        let mut buffer = [0; 100];
        let read = stream.read(&mut buffer).unwrap();
        String::from_utf8(buffer[..read].to_vec()).unwrap()
    }

    fn is_silent(stream: &mut StdTcpStream) {
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let said = stream.read(&mut [0; 9]).unwrap_err().kind();
        assert!(matches!(said, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{said:?}");
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }

    fn two_members() -> (Relay, [SocketAddr; 2]) {
        let targets = [echo(), echo()];
        let at = [0, 1].map(|member: usize| SocketAddr::from((host(member as u32), targets[member].port())));
        let routes = [0, 1].map(|member| (member, at[member], targets[member]));
        (Relay::start(routes.to_vec()).unwrap(), at)
    }

    #[test]
    fn nothing_comes_through_to_a_member_that_is_cut_off_and_all_of_it_afterwards() {
        let (relay, at) = two_members();
        let mut before = connect(at[0]);
        before.write_all(b"one").unwrap();
        assert_eq!(answers(&mut before), "one");
        // A process that dials nothing.
        relay.cut(0, std::os::unix::process::parent_id());
        let (mut during, mut other) = (connect(at[0]), connect(at[1]));
        for stream in [&mut before, &mut during, &mut other] {
            stream.write_all(b"two").unwrap();
        }
        assert_eq!(answers(&mut other), "two", "others are reached");
        is_silent(&mut before);
        is_silent(&mut during);
        relay.heal();
        assert_eq!((answers(&mut before), answers(&mut during)), ("two".into(), "two".into()));
    }

    #[test]
    fn nothing_comes_through_from_a_member_that_is_cut_off() {
        let (relay, at) = two_members();
        let mut before = connect(at[1]);
        before.write_all(b"one").unwrap();
        assert_eq!(answers(&mut before), "one");
        // This process is member 0, and dials member 1.
        relay.cut(0, std::process::id());
        let mut during = connect(at[1]);
        for stream in [&mut before, &mut during] {
            stream.write_all(b"two").unwrap();
            is_silent(stream);
        }
        relay.heal();
        assert_eq!((answers(&mut before), answers(&mut during)), ("two".into(), "two".into()));
    }
}
