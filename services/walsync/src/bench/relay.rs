//! A relay before the store that can go dark: it takes what comes and passes nothing on, neither way, as a network does that loses every packet;
//! what was on its way arrives when it is light again.

use anyhow::Context as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two looks whether it is light again, or over.
const LOOK: Duration = Duration::from_millis(10);
/// For a connection to the store.
const CONNECT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct State {
    is_dark: AtomicBool,
    is_over: AtomicBool,
}

/// Ends when it is dropped, with all of its connections.
pub struct Relay {
    endpoint: String,
    state: Arc<State>,
}

impl Relay {
    /// Before `host:port`.
    pub fn start(target: &str) -> anyhow::Result<Relay> {
        let target = target.trim_end_matches('/');
        let with_port = if target.contains(':') { target.to_owned() } else { format!("{target}:80") };
        let target = with_port.to_socket_addrs()?.next().with_context(|| format!("{with_port} has no address"))?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            while !shared.is_over.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((client, _)) => {
                        let shared = shared.clone();
                        // Who cannot be connected finds his connection closed.
                        std::thread::spawn(move || {
                            let _ = connect(client, &target, &shared);
                        });
                    }
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        });
        Ok(Relay { endpoint, state })
    }

    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    pub fn set_dark(&self, is_dark: bool) {
        self.state.is_dark.store(is_dark, Ordering::Release);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Release);
    }
}

fn connect(client: TcpStream, target: &std::net::SocketAddr, state: &Arc<State>) -> std::io::Result<()> {
    client.set_nonblocking(false)?;
    let server = TcpStream::connect_timeout(target, CONNECT)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        // So that the end of the relay is seen by a connection that is silent.
        stream.set_read_timeout(Some(LOOK * 10))?;
    }
    let (back_from, back_to, shared) = (server.try_clone()?, client.try_clone()?, state.clone());
    std::thread::spawn(move || pump(back_from, back_to, &shared));
    pump(client, server, state);
    Ok(())
}

fn pump(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut buffer = [0; 65_536];
    while !state.is_over.load(Ordering::Acquire) {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        while state.is_dark.load(Ordering::Acquire) && !state.is_over.load(Ordering::Acquire) {
            std::thread::sleep(LOOK);
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // The other direction ends by itself when it has said all.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_is_sent_in_the_dark_arrives_when_it_is_light() {
        let store = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(&store.local_addr().unwrap().to_string()).unwrap();
        let mut client = TcpStream::connect(relay.endpoint().trim_start_matches("http://")).unwrap();
        let (mut server, _) = store.accept().unwrap();
        let mut byte = [0];
        client.write_all(b"1").unwrap();
        server.read_exact(&mut byte).unwrap();
        relay.set_dark(true);
        client.write_all(b"2").unwrap();
        server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        server.read_exact(&mut byte).unwrap_err();
        relay.set_dark(false);
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        server.read_exact(&mut byte).unwrap();
        server.write_all(b"3").unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"3");
        // Its end is that of its connections.
        drop(relay);
        let begun = Instant::now();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(client.read(&mut byte).unwrap_or(0), 0);
        assert!(begun.elapsed() < Duration::from_secs(4));
    }
}
