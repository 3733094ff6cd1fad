//! Writes what a turn of the connection's task produced with one system call.
//!
//! HTTP/2 flushes whenever it is asked whether there is something to do: once for the answer to a ping, once for the window,
//! once for the answers. A write to a socket costs more than all else that an answer costs.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is held back at most, bytes. Beyond, writes go through.
const HELD_BYTES_MAX: usize = 64 << 10;

/// The half that HTTP/2 writes to.
pub(crate) struct Corked<T>(Rc<RefCell<Held<T>>>);

/// The half that lets go.
pub(crate) struct Cork<T>(Rc<RefCell<Held<T>>>);

struct Held<T> {
    io: T,
    buffer: BytesMut,
    /// The socket was full when it was written to last.
    is_blocked: bool,
}

/// Both halves.
pub(crate) fn cork<T>(io: T) -> (Corked<T>, Cork<T>) {
    let held = Rc::new(RefCell::new(Held { io, buffer: BytesMut::new(), is_blocked: false }));
    (Corked(Rc::clone(&held)), Cork(held))
}

impl<T: AsyncRead + Unpin> Cork<T> {
    /// Reads what still comes, and throws it away, until the other side has closed.
    pub(crate) async fn read_out(&self) {
        let mut space = [0; 4 << 10];
        poll_fn(|context| {
            loop {
                let mut buffer = ReadBuf::new(&mut space);
                let read = ready!(Pin::new(&mut self.0.borrow_mut().io).poll_read(context, &mut buffer));
                if read.is_err() || buffer.filled().is_empty() {
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }
}

impl<T: AsyncWrite + Unpin> Cork<T> {
    /// Whether all that was held back is the answer to one ping.
    pub(crate) fn holds_only_pong(&self) -> bool {
        is_pong(&self.0.borrow().buffer)
    }

    /// Whether the other side does not read what is written.
    pub(crate) fn is_blocked(&self) -> bool {
        self.0.borrow().is_blocked
    }

    /// Writes what was held back. Pending: the socket is full; the task will be woken.
    pub(crate) fn poll_release(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_release(context)
    }
}

/// RFC 9113, 4.1 and 6.7: a frame of 9 bytes of head, type 6, flag 1, and 8 bytes.
fn is_pong(frames: &[u8]) -> bool {
    matches!(frames, [0, 0, 8, 6, 1, ..]) && frames.len() == 17
}

impl<T: AsyncWrite + Unpin> Held<T> {
    fn poll_release(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.buffer.is_empty() {
            let written = Pin::new(&mut self.io).poll_write(context, &self.buffer);
            self.is_blocked = written.is_pending();
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.buffer.advance(written);
        }
        // An idle connection keeps no buffer.
        self.buffer = BytesMut::new();
        Pin::new(&mut self.io).poll_flush(context)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Corked<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().io).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Corked<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut held = self.0.borrow_mut();
        let held = &mut *held;
        let bytes = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if held.buffer.len() + bytes > HELD_BYTES_MAX {
            ready!(held.poll_release(context))?;
            if bytes > HELD_BYTES_MAX {
                let written = Pin::new(&mut held.io).poll_write_vectored(context, slices);
                held.is_blocked = written.is_pending();
                return written;
            }
        }
        for slice in slices {
            held.buffer.extend_from_slice(slice);
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.0.borrow_mut();
        ready!(held.poll_release(context))?;
        Pin::new(&mut held.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn the_answer_to_a_ping_is_known() {
        let pong = [&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], &[7; 8]].concat();
        assert!(is_pong(&pong));
        let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[7; 8]].concat();
        let two = [&pong[..], &pong].concat();
        let data = [&[0, 0, 8, 0, 1, 0, 0, 0, 1][..], &[7; 8]].concat();
        assert!([&ping[..], &two, &data, &pong[..16], &[]].iter().all(|other| !is_pong(other)));
    }

    #[test]
    fn a_client_that_does_not_read_is_seen_behind_a_large_write_too() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(1024);
            let (mut corked, cork) = cork(near);
            let large = vec![b'x'; HELD_BYTES_MAX + 1];
            let taken = corked.write(&large).await.unwrap();
            assert!(!cork.is_blocked());
            let rest = poll_fn(|context| Poll::Ready(Pin::new(&mut corked).poll_write(context, &large))).await;
            assert!(rest.is_pending() && cork.is_blocked());
            far.read_exact(&mut vec![0; taken]).await.unwrap();
            assert!(corked.write(&large).await.unwrap() > 0 && !cork.is_blocked());
        });
    }

    #[test]
    fn what_is_held_back_comes_in_order_and_a_large_write_does_not_overtake() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(16 << 20);
            let (mut corked, cork) = cork(near);
            corked.write_all(b"first ").await.unwrap();
            corked.flush().await.unwrap();
            assert_eq!(cork.0.borrow().buffer.len(), 6);
            corked.write_all(&vec![b'x'; HELD_BYTES_MAX + 1]).await.unwrap();
            corked.write_all(b" last").await.unwrap();
            poll_fn(|context| cork.poll_release(context)).await.unwrap();
            let mut seen = vec![0; 6 + HELD_BYTES_MAX + 1 + 5];
            far.read_exact(&mut seen).await.unwrap();
            assert!(seen.starts_with(b"first x") && seen.ends_with(b"x last"));
        });
    }
}
