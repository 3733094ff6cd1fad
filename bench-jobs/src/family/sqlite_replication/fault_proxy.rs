//! Stands between a replicator and its object store, and lets that fail for a while: as a network that loses everything, or as a
//! service that refuses everything.
//!
//! The replicator is told this address as its endpoint from the start, so that it is the same in a pod, where nothing else
//! between the two could be reached. One thread; connections are passed on byte by byte. The load itself never goes through it.

use std::io;
use std::net::TcpListener as StdTcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes passed on at once.
const BUFFER_BYTES: usize = 64 * 1024;
/// A longer head of a request is no request.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long the body of a refused request is read, so that the refusal is not lost with the connection.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Between two attempts to take a connection where one failed: the loader needs the processor for its load.
const ACCEPT_PAUSE: Duration = Duration::from_millis(1);

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

/// A proxy at work, for as long as the process lives.
#[derive(Clone, Debug)]
pub(super) struct FaultProxy(Arc<watch::Sender<Fault>>);

impl FaultProxy {
    /// Listens at `listen`, and passes on to `object_store`, both `host:port`.
    pub(super) fn start(listen: &str, object_store: &str) -> io::Result<Self> {
        let failed = |error| io::Error::other(format!("faultProxy: cannot listen on {listen}: {error}"));
        let listener = StdTcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true)?;
        let (sender, fault) = watch::channel(Fault::None);
        let object_store = object_store.to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        std::thread::Builder::new().name("fault-proxy".into()).spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                serve(&listener, &object_store, &fault).await;
            });
        })?;
        Ok(Self(Arc::new(sender)))
    }

    /// From now on requests fail like this.
    pub(super) fn set(&self, fault: Fault) {
        self.0.send_replace(fault);
    }
}

/// Takes connections for as long as there is anybody to say what happens to them.
async fn serve(listener: &TcpListener, object_store: &str, fault: &watch::Receiver<Fault>) {
    while fault.has_changed().is_ok() {
        // An error concerns one connection that was not made, or files that are all open, which ends by itself.
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (object_store, fault) = (object_store.to_owned(), fault.clone());
        // Who breaks a connection breaks the other half of it.
        tokio::spawn(async move { pass_on(client, &object_store, fault).await.ok() });
    }
}

/// Waits until this is so. An error: the proxy ends.
async fn until(fault: &mut watch::Receiver<Fault>, is_so: impl Fn(Fault) -> bool) -> io::Result<()> {
    fault.wait_for(|fault| is_so(*fault)).await.map(drop).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

async fn pass_on(client: TcpStream, object_store: &str, mut fault: watch::Receiver<Fault>) -> io::Result<()> {
    until(&mut fault, |fault| fault != Fault::BlackHole).await?;
    if *fault.borrow() == Fault::ServiceUnavailable {
        return refuse(client).await;
    }
    let server = TcpStream::connect(object_store).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let both = async {
        tokio::try_join!(copy(from_client, to_server, fault.clone()), copy(from_server, to_client, fault.clone()))
    };
    let mut cut = fault.clone();
    tokio::select! {
        copied = both => copied.map(drop),
        // What was under way is cut off: nobody knows whether it was done.
        cut = until(&mut cut, |fault| fault == Fault::ServiceUnavailable) => cut,
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut fault: watch::Receiver<Fault>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        // Held back and not lost, as what a network sends again.
        until(&mut fault, |fault| fault != Fault::BlackHole).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
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
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream as StdTcpStream;

    /// A server that answers each line with itself.
    fn echo() -> String {
        let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
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

    fn proxy() -> (FaultProxy, String) {
        let listen = format!("127.0.0.1:{}", harness::free_port());
        (FaultProxy::start(&listen, &echo()).unwrap(), listen)
    }

    fn connect(address: &str) -> StdTcpStream {
        let stream = StdTcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    fn answer(stream: &mut StdTcpStream) -> String {
        let mut buffer = [0; 1000];
        let read = stream.read(&mut buffer).unwrap();
        String::from_utf8(buffer[..read].to_vec()).unwrap()
    }

    #[test]
    fn connections_that_cannot_be_taken_leave_the_processor_to_the_load() {
        // Something has come, and it can be no connection.
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let listener = StdTcpListener::from(std::os::fd::OwnedFd::from(socket));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ran = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
        };
        let before = ran();
        runtime.block_on(async {
            let (_sender, fault) = watch::channel(Fault::None);
            let listener = TcpListener::from_std(listener).unwrap();
            let served = serve(&listener, "127.0.0.1:1", &fault);
            assert!(tokio::time::timeout(Duration::from_millis(400), served).await.is_err(), "it goes on");
        });
        let used = ran() - before;
        assert!(used < Duration::from_millis(60), "it ran for {used:?} of 400 ms");
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
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let said = stream.read(&mut [0; 9]).unwrap_err().kind();
            assert!(matches!(said, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{said:?}");
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
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
