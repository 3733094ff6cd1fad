//! Messages that clients send compressed. What comes out short is unpacked at once; what is longer, or is when it turns out to be, on a thread of its
//! own, one of a connection at a time and on one processor in two, so that whoever sends little that becomes much keeps nobody else waiting.

use std::pin::Pin;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::grpc::call::Decompress;
use crate::grpc::memory::{Elsewhere, Share, Taken};
use crate::grpc::status::{Code, Status};

/// More than this keeps other clients of a thread waiting.
const AT_ONCE_BYTES: usize = 256 << 10;

/// A message that is unpacked elsewhere, and its room.
pub(crate) type Unpacking = Pin<Box<dyn Future<Output = Result<(Vec<u8>, Elsewhere), Status>>>>;

/// Unpacks a message that turns out to be short, into room of `taken`; `None`: it is long.
pub(crate) fn at_once(
    decompress: Decompress,
    message: &[u8],
    length_max: usize,
    taken: &mut Taken,
) -> Option<Result<Vec<u8>, Status>> {
    if message.len() > AT_ONCE_BYTES {
        return None;
    }
    let (mut granted, mut is_long) = (0, false);
    let plain = decompress(message, length_max, &mut |bytes| {
        is_long = granted + bytes > AT_ONCE_BYTES;
        if is_long {
            return Err(Status::new(Code::ResourceExhausted, "it is unpacked elsewhere"));
        }
        taken.grow(bytes)?;
        granted += bytes;
        Ok(())
    });
    if is_long {
        taken.shrink(granted);
        return None;
    }
    Some(plain)
}

/// Unpacks a long message as soon as it is its turn, as long as somebody waits for it.
pub(crate) fn elsewhere(decompress: Decompress, message: Bytes, length_max: usize, share: &Share) -> Unpacking {
    let share = share.clone();
    Box::pin(async move {
        let _turn = share.unpacking_turn().await;
        let place = share.unpacking_place().await;
        let mut room = share.room_elsewhere();
        let (tell, told) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let plain = decompress(&message, length_max, &mut |bytes| match tell.is_closed() {
                true => Err(Status::new(Code::Canceled, "the client has gone")),
                false => room.grow(bytes),
            });
            // Before its room, which is given back where nobody waits any more.
            drop((message, place));
            let _ = tell.send(plain.map(|plain| (plain, room)));
        });
        // An error here says that the server stops, or that unpacking has panicked.
        told.await.unwrap_or_else(|_| Err(Status::new(Code::Internal, "grpc: the message could not be unpacked")))
    })
}
