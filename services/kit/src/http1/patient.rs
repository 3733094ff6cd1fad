//! A connection that is given up when its client does not take what is written: 256 KiB, or all that there is, in so much time.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::grpc::ANSWER_PIECE_BYTES;

pub(super) struct Patient<T> {
    io: T,
    patience: Duration,
    /// Rings when the client has not taken enough since it was waited for.
    still: Option<Pin<Box<Sleep>>>,
    /// What it has taken since then.
    taken: usize,
}

impl<T> Patient<T> {
    pub(super) fn new(io: T, patience: Duration) -> Self {
        Self { io, patience, still: None, taken: 0 }
    }

    /// What became of a write of so many bytes, if the client takes what is written in time.
    fn written(
        &mut self,
        written: Poll<io::Result<usize>>,
        bytes: usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            self.taken += count;
            if count == bytes || self.taken >= ANSWER_PIECE_BYTES {
                self.still = None;
            }
        }
        self.in_time(written, context)
    }

    fn in_time<R>(&mut self, result: Poll<io::Result<R>>, context: &mut Context<'_>) -> Poll<io::Result<R>> {
        if result.is_ready() {
            return result;
        }
        if self.still.is_none() {
            self.taken = 0;
        }
        let patience = self.patience;
        let still = self.still.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(still.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.written(written, bytes.len(), context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.written(written, slices.iter().map(|slice| slice.len()).sum(), context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        if flushed.is_ready() {
            self.still = None;
        }
        self.in_time(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(context);
        self.in_time(shut, context)
    }
}
