//! A connection that goes to another member when its own does not answer, as a client's would.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::sleep;

use super::super::store::{Connection, Spoken, Store};
use crate::failure::Failure;

/// Before the next member is asked, where one refused: a group that elects a leader is not to be flooded meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

/// The connection that some clients share, to whichever member answers.
#[derive(Debug)]
pub(in super::super) struct Line {
    spoken: Spoken,
    endpoints: Rc<[String]>,
    timeout: Duration,
    /// How often it has gone to another member; the member is this modulo their number.
    moves: Cell<usize>,
    connection: RefCell<Option<Connection>>,
    /// Held by who opens one, so that it is opened once.
    opening: Mutex<()>,
}

impl Line {
    /// Begins with a connection that is there, to one of the endpoints.
    pub(in super::super) fn new(connection: &Connection, endpoints: &Rc<[String]>, timeout: Duration) -> Self {
        let at = endpoints.iter().position(|endpoint| *endpoint == connection.endpoint());
        Self {
            spoken: connection.spoken(),
            endpoints: Rc::clone(endpoints),
            timeout,
            moves: Cell::new(at.unwrap_or_default()),
            connection: RefCell::new(Some(connection.clone())),
            opening: Mutex::new(()),
        }
    }

    /// What is spoken on it.
    pub(super) fn spoken(&self) -> Spoken {
        self.spoken
    }

    /// The connection of this moment, and the number of moves that it belongs to.
    async fn open(&self) -> Result<(usize, Connection), Failure> {
        let _turn = self.opening.lock().await;
        let moves = self.moves.get();
        if let Some(connection) = &*self.connection.borrow() {
            return Ok((moves, connection.clone()));
        }
        let endpoint = &self.endpoints[moves % self.endpoints.len()];
        match Connection::open_once(self.spoken, endpoint, self.timeout).await {
            Ok(connection) => {
                self.connection.replace(Some(connection.clone()));
                Ok((moves, connection))
            }
            Err(failure) => {
                self.leave(moves);
                Err(failure.without_effect())
            }
        }
    }

    /// Goes on to the next member, unless another client has done so.
    fn leave(&self, moves: usize) {
        if self.moves.get() == moves {
            self.moves.set(moves + 1);
            self.connection.replace(None);
        }
    }
}

/// One client on a line.
#[derive(Debug)]
pub(super) struct Caller<'a> {
    line: &'a Line,
    /// A client on the connection of so many moves.
    store: Option<(usize, Store)>,
}

impl<'a> Caller<'a> {
    pub(super) fn new(line: &'a Line) -> Self {
        Self { line, store: None }
    }

    /// Sends a request, and sends it again to the next member where it surely had no effect: for as long as an answer may take. The failure
    /// says whether the outcome is unknown.
    pub(super) async fn ask<T>(
        &mut self,
        mut request: impl AsyncFnMut(&mut Store) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + self.line.timeout;
        loop {
            let failure = match self.store().await {
                Ok((moves, store)) => match request(store).await {
                    Ok(answer) => return Ok(answer),
                    Err(failure) => {
                        self.line.leave(moves);
                        failure
                    }
                },
                Err(failure) => failure,
            };
            if !failure.has_not_happened() || Instant::now() >= deadline {
                return Err(failure);
            }
            sleep(PAUSE).await;
        }
    }

    async fn store(&mut self) -> Result<(usize, &mut Store), Failure> {
        let is_current = self.store.as_ref().is_some_and(|(moves, _)| *moves == self.line.moves.get());
        if !is_current {
            self.store = None;
            let (moves, connection) = self.line.open().await?;
            self.store = Some((moves, connection.store()));
        }
        match &mut self.store {
            Some((moves, store)) => Ok((*moves, store)),
            None => Err(Failure::new("a client without a connection")),
        }
    }
}
