//! Stands between two who speak to each other, and passes on what they say byte by byte, or holds it back for a while: what faults of a network are
//! made of. What is held back is not lost, as what a network sends again.
//!
//! One thread for all connections, which is in the way of every request: whoever has one audits it as a thread of the loader.

use std::io;
use std::net::TcpListener as StdTcpListener;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::thread::gettid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes passed on at once.
const BUFFER_BYTES: usize = 64 * 1024;
/// Between two attempts to take a connection where one failed: others need the processor for the load.
const ACCEPT_PAUSE: Duration = Duration::from_millis(1);

/// A thread that relays, as `S` says it must. When all copies of it are dropped, it ends.
#[derive(Debug)]
pub struct Relay<S> {
    state: Arc<watch::Sender<S>>,
    thread: i32,
}

impl<S> Clone for Relay<S> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), thread: self.thread }
    }
}

impl<S: Send + Sync + 'static> Relay<S> {
    /// Takes connections at these listeners on a thread of this name. What is done with one is `pass_on`'s to say, which is told what stands beside
    /// its listener.
    pub fn start<T, F, P>(name: &str, listeners: Vec<(StdTcpListener, T)>, state: S, pass_on: P) -> io::Result<Self>
    where
        T: Clone + Send + 'static,
        F: Future<Output = io::Result<()>> + Send + 'static,
        P: Fn(TcpStream, T, watch::Receiver<S>) -> F + Clone + Send + 'static,
    {
        listeners.iter().try_for_each(|(listener, _)| listener.set_nonblocking(true))?;
        let (sender, state) = watch::channel(state);
        let (started, thread) = sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        std::thread::Builder::new().name(name.into()).spawn(move || {
            let _ = started.send(gettid().as_raw_nonzero().get());
            let mut end = state.clone();
            runtime.block_on(async move {
                for (listener, beside) in listeners {
                    let (state, pass_on) = (state.clone(), pass_on.clone());
                    let Ok(listener) = TcpListener::from_std(listener) else { return };
                    tokio::spawn(async move {
                        accept(&listener, move |client| {
                            // Who breaks a connection breaks the other half of it.
                            let passed_on = pass_on(client, beside.clone(), state.clone());
                            tokio::spawn(async move { passed_on.await.ok() });
                        })
                        .await;
                    });
                }
                // An error: whoever could say anything is gone.
                while end.changed().await.is_ok() {}
            });
        })?;
        let thread = thread.recv().map_err(|_| io::Error::other("the thread that relays did not start"))?;
        Ok(Self { state: Arc::new(sender), thread })
    }

    /// From now on it is to be so.
    pub fn set(&self, state: S) {
        self.state.send_replace(state);
    }

    /// The thread, as the kernel numbers those of this process.
    pub fn thread(&self) -> i32 {
        self.thread
    }
}

/// Takes connections, for ever.
async fn accept(listener: &TcpListener, mut take: impl FnMut(TcpStream)) {
    loop {
        // An error concerns one connection that was not made, or files that are all open, which ends by itself.
        match listener.accept().await {
            Ok((client, _)) => take(client),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Waits until this is so. An error: the relay ends.
pub async fn until<S>(state: &mut watch::Receiver<S>, is_so: impl Fn(&S) -> bool) -> io::Result<()> {
    state.wait_for(|state| is_so(state)).await.map(drop).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

/// Passes on what comes from both ends, as long as the way is open; what has come before it closed is held back.
pub async fn pass_on<S>(
    client: TcpStream,
    server: TcpStream,
    state: watch::Receiver<S>,
    is_open: impl Fn(&S) -> bool,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::try_join!(
        copy(from_client, to_server, state.clone(), &is_open),
        copy(from_server, to_client, state, &is_open)
    )?;
    Ok(())
}

async fn copy<S>(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<S>,
    is_open: impl Fn(&S) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        until(&mut state, &is_open).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::thread::ThreadUse;
    use std::io::{Read as _, Write as _};
    use std::time::Instant;

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
            let listener = TcpListener::from_std(listener).unwrap();
            let accepted = accept(&listener, drop);
            assert!(tokio::time::timeout(Duration::from_millis(400), accepted).await.is_err(), "it goes on");
        });
        let used = ran() - before;
        assert!(used < Duration::from_millis(60), "it ran for {used:?} of 400 ms");
    }

    #[test]
    fn what_a_relay_uses_is_seen_at_its_thread() {
        let target = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let at = target.local_addr().unwrap();
        std::thread::spawn(move || std::io::copy(&mut target.accept().unwrap().0, &mut std::io::sink()));
        let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let relay = Relay::start("test-relay", vec![(listener, at)], (), |client, at, state| async move {
            pass_on(client, TcpStream::connect(at).await?, state, |()| true).await
        });
        let relay = relay.unwrap();
        let before = ThreadUse::of_own(relay.thread());
        let mut client = std::net::TcpStream::connect(address).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            client.write_all(&[7; BUFFER_BYTES]).unwrap();
        }
        let used = ThreadUse::of_own(relay.thread()).since(before);
        assert!(used.cpu_nanos > 10_000_000, "{used:?}");
        drop(relay);
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert!(matches!(client.read(&mut [0; 9]), Ok(0) | Err(_)), "it has ended, and its connections with it");
    }
}
