//! Memory for messages under way: those whose end has not come yet, and those that were put together of pieces and are being worked on.
//!
//! A message is counted with the length that it claims, before its second piece is taken, and refused when there is no room: one
//! connection cannot take what all have, and all together cannot take more than the server may use. A message that came in one piece
//! is not counted: what of those can be there at a time is bounded by the windows.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::grpc::status::{Code, Status};

/// What all connections of a server share. Clones are the same.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_max: usize,
    taken: AtomicUsize,
}

impl Memory {
    /// So many bytes for all.
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Shared { bytes_max, taken: AtomicUsize::new(0) }))
    }

    /// What is taken at the moment, bytes.
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// The part of one connection.
    pub(crate) fn of_connection(&self, bytes_max: usize) -> Share {
        Share(Rc::new(Connection { memory: self.clone(), bytes_max, taken: Cell::new(0) }))
    }
}

/// What a connection may take. Clones are the same.
#[derive(Clone)]
pub(crate) struct Share(Rc<Connection>);

struct Connection {
    memory: Memory,
    bytes_max: usize,
    taken: Cell<usize>,
}

impl Share {
    /// Takes room for a message of this length, or says what the call must end with.
    pub(crate) fn take(&self, bytes: usize) -> Result<Taken, Status> {
        let refused = |whose: &str, bytes_max: usize| {
            let what = format!(
                "grpc: no room for a message of {bytes} bytes: messages under way {whose} may take {bytes_max}"
            );
            Err(Status::new(Code::ResourceExhausted, what))
        };
        let Connection { memory: Memory(shared), bytes_max, taken } = &*self.0;
        if bytes > bytes_max - taken.get() {
            return refused("on a connection", *bytes_max);
        }
        let add = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= shared.bytes_max);
        if shared.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return refused("on all connections", shared.bytes_max);
        }
        taken.set(taken.get() + bytes);
        Ok(Taken { share: self.clone(), bytes })
    }
}

/// Room that is given back when this is dropped.
pub(crate) struct Taken {
    share: Share,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Connection { memory: Memory(shared), taken, .. } = &*self.share.0;
        taken.set(taken.get() - self.bytes);
        shared.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_connection_cannot_take_what_all_have() {
        let memory = Memory::new(100);
        let (one, other) = (memory.of_connection(60), memory.of_connection(60));
        let first = one.take(50).map_err(|status| status.message).unwrap();
        let said = one.take(11).err().unwrap();
        assert_eq!(said.code, Code::ResourceExhausted);
        assert_eq!(
            said.message,
            "grpc: no room for a message of 11 bytes: messages under way on a connection may take 60"
        );
        let second = other.take(50).map_err(|status| status.message).unwrap();
        assert!(one.take(10).err().unwrap().message.ends_with("on all connections may take 100"));
        drop(first);
        assert_eq!(memory.taken(), 50);
        assert!(one.take(50).is_ok());
        drop((one, other, second));
        assert_eq!(memory.taken(), 0);
    }

    proptest! {
        #[test]
        fn never_more_than_there_is_and_all_of_it_comes_back(
            steps in proptest::collection::vec((0..3_usize, 0..50_usize, any::<bool>()), 0..60),
        ) {
            let memory = Memory::new(100);
            let connections = [40, 60, 100].map(|bytes_max| memory.of_connection(bytes_max));
            let mut held: Vec<Taken> = Vec::new();
            for (connection, bytes, gives_back) in steps {
                if gives_back && !held.is_empty() {
                    held.swap_remove(bytes % held.len());
                } else {
                    held.extend(connections[connection].take(bytes));
                }
                let sum = held.iter().map(|taken| taken.bytes).sum::<usize>();
                prop_assert!(sum <= 100);
                prop_assert_eq!(sum, memory.taken());
                for Share(connection) in &connections {
                    prop_assert!(connection.taken.get() <= connection.bytes_max);
                }
            }
            drop(held);
            prop_assert_eq!(memory.taken(), 0);
        }
    }
}
