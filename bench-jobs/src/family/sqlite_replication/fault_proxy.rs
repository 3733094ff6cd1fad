//! Stands between a replicator and its object store, and lets that fail for a while: as a network that loses everything, or as a
//! service that refuses everything.
//!
//! The replicator is told this address as its endpoint from the start, so that it is the same in a pod, where nothing else
//! between the two could be reached. The load itself never goes through it.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::net::relay::{self, Relay, until};

/// A longer head of a request is no request.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a refused request read at once.
const BUFFER_BYTES: usize = 64 * 1024;
/// How long the body of a refused request is read, so that the refusal is not lost with the connection.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// They are passed on.
    None,
    /// They are taken, and nothing comes back; what was sent arrives when it is over.
    BlackHole,
    /// Connections are cut, and every request on a new one is answered with 503.
    ServiceUnavailable,
}

/// A proxy at work, for as long as the process lives. Its thread is one of the load process, and audited with the others.
#[derive(Clone, Debug)]
pub(super) struct FaultProxy(Relay<Fault>);

impl FaultProxy {
    /// Listens at `listen`, and passes on to `object_store`, both `host:port`.
    pub(super) fn start(listen: &str, object_store: &str) -> io::Result<Self> {
        let failed = |error| io::Error::other(format!("faultProxy: cannot listen on {listen}: {error}"));
        let listener = TcpListener::bind(listen).map_err(failed)?;
        Relay::start("fault-proxy", vec![(listener, object_store.to_owned())], Fault::None, pass_on).map(Self)
    }

    /// From now on requests fail like this.
    pub(super) fn set(&self, fault: Fault) {
        self.0.set(fault);
    }
}

async fn pass_on(client: TcpStream, object_store: String, mut fault: watch::Receiver<Fault>) -> io::Result<()> {
    let is_open = |fault: &Fault| *fault != Fault::BlackHole;
    until(&mut fault, is_open).await?;
    if *fault.borrow() == Fault::ServiceUnavailable {
        return refuse(client).await;
    }
    let server = TcpStream::connect(&object_store).await?;
    let both = relay::pass_on(client, server, fault.clone(), is_open);
    tokio::select! {
        copied = both => copied,
        // What was under way is cut off: nobody knows whether it was done.
        cut = until(&mut fault, |fault| *fault == Fault::ServiceUnavailable) => cut,
    }
}

async fn refuse(mut client: TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if head.len() > HEAD_BYTES_MAX || client.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let body =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>SlowDown</Code><Message>an outage</Message></Error>";
    let head =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length:";
    client.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    client.shutdown().await?;
    let mut rest = vec![0; BUFFER_BYTES];
    let drain = async { while client.read(&mut rest).await.is_ok_and(|read| read > 0) {} };
    // One that goes on sending for ever is cut off.
    tokio::time::timeout(DRAIN_TIMEOUT, drain).await.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::echo::{answer, connect, echo, is_silent};
    use std::io::{Read as _, Write as _};

    fn proxy() -> (FaultProxy, String) {
        let listen = format!("127.0.0.1:{}", harness::free_port());
        (FaultProxy::start(&listen, &echo().to_string()).unwrap(), listen)
    }

    #[test]
    fn a_black_hole_holds_back_what_arrives_afterwards() {
        let (proxy, address) = proxy();
        let mut before = connect(&address);
        before.write_all(b"one").unwrap();
        assert_eq!(answer(&mut before), "one");
        proxy.set(Fault::BlackHole);
        let mut during = connect(&address);
        for stream in [&mut before, &mut during] {
            stream.write_all(b"two").unwrap();
            is_silent(stream);
        }
        proxy.set(Fault::None);
        assert_eq!((answer(&mut before), answer(&mut during)), ("two".into(), "two".into()));
    }

    #[test]
    fn an_unavailable_service_cuts_connections_and_refuses_requests_until_it_is_back() {
        let (proxy, address) = proxy();
        let mut before = connect(&address);
        before.write_all(b"one").unwrap();
        assert_eq!(answer(&mut before), "one");
        proxy.set(Fault::ServiceUnavailable);
        assert!(matches!(before.read(&mut [0; 9]), Ok(0) | Err(_)), "cut off");
        let mut during = connect(&address);
        let request = [b"PUT /x HTTP/1.1\r\nContent-Length: 100000\r\n\r\n".to_vec(), vec![7; 100_000]].concat();
        during.write_all(&request).unwrap();
        let said = answer(&mut during);
        assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("SlowDown"), "{said}");
        proxy.set(Fault::None);
        let mut after = connect(&address);
        after.write_all(b"two").unwrap();
        assert_eq!(answer(&mut after), "two");
    }
}
