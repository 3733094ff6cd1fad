//! Stands before every member of a store that is to be cut off: clients and other members dial addresses of ours on loopback, and what they say is
//! passed on, unless its way crosses the cut.
//!
//! Each member has an address of its own (127.0.0.2, 127.0.0.3, …), at which we listen at the ports at which the member itself listens at 127.0.0.1.
//! Who dials a member is found in `/proc`, so that a member is cut off from others in both directions. A connection that is dialled meanwhile is
//! taken, and gets no answer before the cut is over.
//!
//! Its thread is in the way of every request, as one of the loader's is, and is audited with them ([`Relay::thread`]).

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use bench_jobs::net::connected::connections_of;
use bench_jobs::net::relay::{self, until};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// What its thread is called.
pub(super) const THREAD: &str = "relay";

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
pub(super) struct Relay(relay::Relay<State>);

impl Relay {
    /// Listens for each of these: a member, where others dial, and where the member listens.
    pub(super) fn start(routes: Vec<(usize, SocketAddr, SocketAddr)>) -> anyhow::Result<Self> {
        let mut listeners = Vec::with_capacity(routes.len());
        for (member, at, target) in routes {
            let listener = TcpListener::bind(at).with_context(|| format!("a relay cannot listen at {at}"))?;
            listeners.push((listener, (member, target)));
        }
        Ok(Self(relay::Relay::start(THREAD, listeners, None, pass_on)?))
    }

    /// From now on nothing comes through to a member, which is this process, or from it.
    pub(super) fn cut(&self, member: usize, process: u32) {
        let dialled = Mutex::new(connections_of(process));
        self.0.set(Some(Arc::new(Cut { member, process, dialled })));
    }

    /// From now on all comes through.
    pub(super) fn heal(&self) {
        self.0.set(None);
    }

    /// The thread through which all requests go, as the kernel numbers those of this process.
    pub(super) fn thread(&self) -> i32 {
        self.0.thread()
    }
}

async fn pass_on(
    client: TcpStream,
    (member, target): (usize, SocketAddr),
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let way = Way { from: client.peer_addr()?, to: client.local_addr()?, member };
    if let Some(cut) = state.borrow().as_ref() {
        cut.sees(&way);
    }
    let is_open = move |cut: &State| cut.as_ref().is_none_or(|cut| !cut.crosses(&way));
    until(&mut state, is_open).await?;
    relay::pass_on(client, TcpStream::connect(target).await?, state, is_open).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::echo::{answer, connect, echo, is_silent};
    use std::io::Write as _;

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
        assert_eq!(answer(&mut before), "one");
        // A process that dials nothing.
        relay.cut(0, std::os::unix::process::parent_id());
        let (mut during, mut other) = (connect(at[0]), connect(at[1]));
        for stream in [&mut before, &mut during, &mut other] {
            stream.write_all(b"two").unwrap();
        }
        assert_eq!(answer(&mut other), "two", "others are reached");
        is_silent(&mut before);
        is_silent(&mut during);
        relay.heal();
        assert_eq!((answer(&mut before), answer(&mut during)), ("two".into(), "two".into()));
    }

    #[test]
    fn nothing_comes_through_from_a_member_that_is_cut_off() {
        let (relay, at) = two_members();
        let mut before = connect(at[1]);
        before.write_all(b"one").unwrap();
        assert_eq!(answer(&mut before), "one");
        // This process is member 0, and dials member 1.
        relay.cut(0, std::process::id());
        let mut during = connect(at[1]);
        for stream in [&mut before, &mut during] {
            stream.write_all(b"two").unwrap();
            is_silent(stream);
        }
        relay.heal();
        assert_eq!((answer(&mut before), answer(&mut during)), ("two".into(), "two".into()));
    }
}
