//! All of the state, piece by piece, as of one moment. A client that takes nothing makes it wait, and holds a piece or three, a thread and
//! the state of that moment; so it does not wait for long.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use d_engine_client::wire;
use service_kit::grpc::{self, Code, Requests, Responses, Status};
use tokio::sync::mpsc;

use super::{errors, only};
use crate::engine::Node;

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;

/// Collects what is written into pieces.
struct Pieces {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.piece).into();
        self.pieces.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Sends it.
pub(super) async fn send(
    node: Node,
    requests: Requests,
    responses: Responses,
    patience: Duration,
) -> Result<(), Status> {
    let wire::SnapshotRequest {} = only(requests).await?;
    let save = node.backup().await.map_err(errors::status)?;
    let (pieces, mut taken) = mpsc::channel(1);
    tokio::task::spawn_blocking(move || {
        let mut out = Pieces { pieces: pieces.clone(), piece: Vec::with_capacity(PIECE_BYTES) };
        if let Err(error) = save(&mut out) {
            // Where nobody listens any more, nobody wants to know.
            let _ = pieces.blocking_send(Err(error));
        }
    });
    while let Some(piece) = taken.recv().await {
        let data =
            piece.map_err(|error| Status::new(Code::Unavailable, format!("the state cannot be read: {error}")))?;
        let piece = grpc::encode(&wire::SnapshotPiece { data });
        let sent = tokio::time::timeout(patience, responses.send_counted(piece)).await;
        let late =
            |_| Status::new(Code::DeadlineExceeded, format!("a piece was not taken within {patience:?}: ask again"));
        sent.map_err(late)??;
    }
    Ok(())
}
