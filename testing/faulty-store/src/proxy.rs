//! The proxy on the level of TCP: two threads for each connection, one for each direction, blocking.
//!
//! Threads and not tasks, because an answer must be held back to within some tens of microseconds and the timer of an
//! asynchronous runtime counts milliseconds. An answer that is the only one its connection waits for is held by the
//! thread that read it; where others are on their way, a third thread holds it, so that reading goes on and the delays
//! of many questions on one connection run side by side instead of one after another.
//!
//! Promises: bytes and their order are what the two `pass` functions of the protocol make of them; the end of one side
//! ends the other.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::hold::{self, Delay, Way};
use crate::tally::Tally;

/// How much is read at once, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// What a protocol does with bytes from client to store.
pub trait Upward: Send {
    /// Takes bytes that came at `now` and appends to `out` what goes on. Tells whether a question was among them.
    fn pass(&mut self, chunk: &[u8], now: Instant, out: &mut Vec<u8>) -> bool;
    /// The client sends no more: appends what was kept back.
    fn finish(&mut self, _out: &mut Vec<u8>) {}
}

/// What a protocol does with bytes from store to client.
pub trait Downward: Send {
    /// Takes bytes and appends to `out` what goes on.
    fn pass(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Answered;
    /// The store sends no more: appends what was kept back.
    fn finish(&mut self, _out: &mut Vec<u8>) {}
}

/// What some bytes from the store answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// When the oldest of the questions came that are answered here, if any.
    pub asked: Option<Instant>,
    /// No other question waits.
    pub alone: bool,
}

/// The protocol of which nothing is known: an answer is whatever comes back after something went out.
/// This is the control arm, and what serves HTTP/1.
pub fn unknown_protocol(tally: &Arc<Tally>) -> (impl Upward + use<>, impl Downward + use<>) {
    struct Questions(Arc<Tally>, Arc<Mutex<Option<Instant>>>);
    struct Answers(Arc<Mutex<Option<Instant>>>);
    impl Upward for Questions {
        fn pass(&mut self, chunk: &[u8], now: Instant, out: &mut Vec<u8>) -> bool {
            let mut asked = lock(&self.1);
            if asked.is_none() {
                *asked = Some(now);
                self.0.request_passed();
            }
            out.extend_from_slice(chunk);
            true
        }
    }
    impl Downward for Answers {
        fn pass(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Answered {
            out.extend_from_slice(chunk);
            Answered { asked: lock(&self.0).take(), alone: true }
        }
    }
    let asked = Arc::new(Mutex::new(None));
    (Questions(tally.clone(), asked.clone()), Answers(asked))
}

/// Carries one connection until it ends.
pub fn carry(
    client: &TcpStream,
    upstream: SocketAddr,
    delay: Option<Delay>,
    (mut upward, downward): (impl Upward + 'static, impl Downward),
) -> io::Result<()> {
    let store = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    store.set_nodelay(true)?;
    let (asking, asked) = (client.try_clone()?, store.try_clone()?);
    let way = Arc::new(Mutex::new(Way::default()));
    let way_asked = way.clone();
    thread::Builder::new().name("questions".into()).spawn(move || {
        let ended = ask(&asking, &asked, &mut upward, &way_asked);
        // The store closes a connection whose client is done; one that failed is closed in both directions.
        // A socket that is closed already is as it should be.
        let _ = asked.shutdown(if ended.is_ok() { Shutdown::Write } else { Shutdown::Both });
    })?;
    let ended = answer(&store, client, delay, downward, &way);
    for socket in [client, &store] {
        // As above.
        let _ = socket.shutdown(Shutdown::Both);
    }
    ended
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing can panic while it holds one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(mut client: &TcpStream, mut store: &TcpStream, upward: &mut impl Upward, way: &Mutex<Way>) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut out = Vec::new();
    loop {
        out.clear();
        let length = client.read(&mut chunk)?;
        if length == 0 {
            upward.finish(&mut out);
            return store.write_all(&out);
        }
        let now = Instant::now();
        if upward.pass(&chunk[..length], now, &mut out) {
            lock(way).asks(now);
        }
        store.write_all(&out)?;
    }
}

fn answer(
    mut store: &TcpStream,
    client: &TcpStream,
    delay: Option<Delay>,
    mut downward: impl Downward,
    way: &Mutex<Way>,
) -> io::Result<()> {
    if delay.is_some() {
        hold::precise();
    }
    let mut line = Line { client, way, waiting: Arc::default(), hand_over: None };
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let mut out = Vec::new();
        let length = store.read(&mut chunk)?;
        let now = Instant::now();
        if length == 0 {
            downward.finish(&mut out);
            line.send(out, None, false)?;
            return line.drain();
        }
        let answered = downward.pass(&chunk[..length], &mut out);
        let due = delay.zip(answered.asked).map(|(delay, asked)| delay.due(asked, now, &lock(way)));
        line.send(out, due, answered.alone)?;
    }
}

/// Answers on their way to the client, in order.
struct Line<'a> {
    client: &'a TcpStream,
    way: &'a Mutex<Way>,
    /// How many were handed over and are not written yet.
    waiting: Arc<AtomicUsize>,
    hand_over: Option<(Sender<Held>, thread::JoinHandle<io::Result<()>>)>,
}

/// An answer, and the instant before which it may not leave.
type Held = (Vec<u8>, Option<Instant>);

impl Line<'_> {
    fn send(&mut self, bytes: Vec<u8>, due: Option<Instant>, alone: bool) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.waiting.load(Ordering::Acquire) == 0 && (alone || due.is_none()) {
            if let Some(due) = due {
                hold::until(due);
            }
            if alone {
                lock(self.way).answers(Instant::now());
            }
            return (&mut &*self.client).write_all(&bytes);
        }
        let (sender, _) = match &self.hand_over {
            Some(holder) => holder,
            None => {
                let (sender, receiver) = channel();
                let (client, waiting) = (self.client.try_clone()?, self.waiting.clone());
                let name = thread::Builder::new().name("held answers".into());
                let thread = name.spawn(move || write_when_due(&client, &receiver, &waiting))?;
                self.hand_over.insert((sender, thread))
            }
        };
        self.waiting.fetch_add(1, Ordering::AcqRel);
        sender.send((bytes, due)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Waits until all is written.
    fn drain(&mut self) -> io::Result<()> {
        let Some((sender, thread)) = self.hand_over.take() else {
            return Ok(());
        };
        drop(sender);
        thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

fn write_when_due(mut client: &TcpStream, answers: &Receiver<Held>, waiting: &AtomicUsize) -> io::Result<()> {
    hold::precise();
    for (bytes, due) in answers {
        if let Some(due) = due {
            hold::until(due);
        }
        client.write_all(&bytes)?;
        waiting.fetch_sub(1, Ordering::AcqRel);
    }
    Ok(())
}
