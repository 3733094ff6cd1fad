//! Load through a fault of the store: SET and GET by clients that connect anew.
//!
//! A client whose request fails gives up what it has on its way and goes on with the next request, on another connection. Until it has one it tries for
//! as long as an answer may take, as a client of redis would. Of a SET that was sent and not answered nobody knows whether it was made: it
//! is in the thread's [`Doubts`](crate::content::doubts).

use std::time::{Duration, Instant};

use storebench_crds::job::Phase;
use storebench_crds::workload::fault::{FAILED_REQUESTS, UNKNOWN_WRITES};
use storebench_crds::workload::redis::RedisProtocol;
use tokio::time::{sleep, timeout_at};

use crate::failure::Failure;
use crate::family::redis::connection::Connection;
use crate::family::redis::measured::Measured;
use crate::family::redis::{Client, Redis};
use crate::load::fault::Course;
use crate::load::session::Session;

/// Before a client tries again: a store that starts is not to be flooded meanwhile.
const PAUSE: Duration = Duration::from_millis(5);
/// Before the store is asked again whether it is back.
const PROBE_PAUSE: Duration = Duration::from_millis(2);
/// How long a store may take to start, or to go on.
const BACK_TIMEOUT: Duration = Duration::from_secs(60);

/// One client's load. The first of all also has the store struck.
pub(super) async fn load(redis: &Redis, session: &Session, course: &Course) -> Result<(), Failure> {
    if session.phase() != Phase::Measure || redis.seat.thread != 0 || session.place() != 0 {
        return requests(redis, session, course).await;
    }
    let context = &redis.seat.context;
    // Its protocol has no members.
    let choose = async { context.endpoints.first().cloned().ok_or_else(|| Failure::new("there is no endpoint")) };
    let run = course.run(&context.workload, choose, async |endpoint: &str| is_back(redis, endpoint).await);
    let (loaded, run) = tokio::join!(requests(redis, session, course), run);
    loaded.and(run.map(drop))?;
    course.tell(session).map(drop)
}

/// Returns when the store answers.
async fn is_back(redis: &Redis, endpoint: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + BACK_TIMEOUT;
    loop {
        let answered = async {
            let context = &redis.seat.context;
            let opened = Connection::open_once(endpoint, RedisProtocol::Resp2, context.timeout);
            opened.await?.ask(&[b"PING".as_slice()]).await
        };
        let last = match timeout_at(deadline.into(), answered).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(failure)) => failure.text().to_owned(),
            Err(_) => "no answer".into(),
        };
        if Instant::now() > deadline {
            return Err(Failure::new(format_args!("{endpoint} is not back {BACK_TIMEOUT:?} after the fault: {last}")));
        }
        sleep(PROBE_PAUSE).await;
    }
}

/// A client's way to the store.
struct Line<'a> {
    redis: &'a Redis,
    endpoint: &'a str,
    /// A connection, and the newest moment of which it is known that it worked: when it was opened, or when something was sent that was answered.
    connection: Option<(Connection, Instant)>,
}

impl Line<'_> {
    /// The connection, or another one; tries for it until the deadline.
    async fn open(&mut self, deadline: Instant) -> Result<&mut Connection, Failure> {
        while self.connection.is_none() {
            let now = Instant::now();
            let limit = deadline.saturating_duration_since(now);
            let protocol = self.redis.plan.parameters.protocol;
            let opened = timeout_at(deadline.into(), Connection::open_once(self.endpoint, protocol, limit)).await;
            let late = |_| Err(Failure::new(format_args!("{}: no connection within {limit:?}", self.endpoint)));
            match opened.unwrap_or_else(late) {
                Ok(connection) => self.connection = Some((connection, now)),
                Err(failure) if Instant::now() + PAUSE >= deadline => return Err(failure),
                Err(_) => sleep(PAUSE).await,
            }
        }
        match &mut self.connection {
            Some((connection, _)) => Ok(connection),
            None => Err(Failure::new("a client without a connection")),
        }
    }

    /// When the newest reply came on the connection.
    fn answered_at(&self) -> Option<Instant> {
        self.connection.as_ref().and_then(|(connection, _)| connection.answered_at())
    }

    /// What was sent then was answered.
    fn works(&mut self, sent: Instant) {
        if let Some((_, since)) = &mut self.connection {
            *since = sent.max(*since);
        }
    }

    /// What was sent then failed, and the connection with it; the moment that says whether it may. One that was used last before a fault may break
    /// when it is used again.
    fn leave(&mut self, sent: Instant) -> Instant {
        self.connection.take().map_or(sent, |(_, since)| since.min(sent))
    }
}

async fn requests(redis: &Redis, session: &Session, course: &Course) -> Result<(), Failure> {
    let Client { connection, picker, mut pushes } = redis.take(session)?;
    let timeout = redis.seat.context.timeout;
    let number = redis.seat.connections[session.connection() as usize];
    let mut line =
        Line { redis, endpoint: redis.seat.endpoint(number), connection: Some((connection, Instant::now())) };
    let mut measured = Measured::new(&redis.plan, &redis.ledger, session, picker, &mut pushes).doubting(&redis.doubts);
    while let Some(batch) = session.next_batch(redis.plan.parameters.pipeline).await {
        let sent = batch.sent();
        let deadline = sent + timeout;
        let exchanged = match line.open(deadline).await {
            Ok(connection) => {
                let exchange = connection.exchange(&mut measured, session, batch);
                let late = || Failure::new(format_args!("no answer within {timeout:?}"));
                timeout_at(deadline.into(), exchange).await.unwrap_or_else(|_| Err(late()))
            }
            Err(failure) => Err(failure),
        };
        let acknowledged = measured.acknowledged();
        // Also of a batch that failed later, and then not at that moment.
        if let Some(answered_at) = line.answered_at().filter(|_| !acknowledged.is_empty()) {
            course.acknowledged(sent, answered_at);
            if course.was_over(sent) {
                acknowledged.iter().for_each(|slot| redis.doubts.survived(*slot));
            }
        }
        let Err(failure) = exchanged else {
            line.works(sent);
            continue;
        };
        if !course.may_fail(line.leave(sent)) {
            return Err(failure);
        }
        session.count(FAILED_REQUESTS, u64::from(session.give_up()));
        session.count(UNKNOWN_WRITES, measured.give_up());
        sleep(PAUSE).await;
    }
    course.ended(Instant::now());
    let picker = measured.finish();
    // The load is over, and what follows needs a store that is there.
    line.open(Instant::now() + BACK_TIMEOUT).await?;
    if let Some((connection, _)) = line.connection {
        redis.put_back(session, Client { connection, picker, pushes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use crate::family::redis::plan::Plan;
    use crate::job::specification;
    use crate::load::session::Source;
    use crate::load::share::Share;
    use crate::load::{Family, Seat};

    /// What a store does when it has a batch.
    enum Then {
        Say(&'static [u8]),
        HangUp,
        Nothing,
    }

    const OK: Then = Then::Say(b"+OK\r\n");

    /// A store that does to each batch, which it has in one piece, what is said of its number.
    async fn serve(listener: TcpListener, mut does: impl FnMut(u32) -> Then) -> Result<(), Failure> {
        let mut batch = 0;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut input = [0; 4096];
            while let Ok(1..) = stream.read(&mut input).await {
                batch += 1;
                match does(batch) {
                    Then::Say(reply) => stream.write_all(reply).await.unwrap(),
                    Then::HangUp => break,
                    Then::Nothing => {}
                }
            }
        }
    }

    /// Looks more often than the thread's would.
    async fn watchdog(session: &Session) -> Result<(), Failure> {
        loop {
            session.shared.check_timeouts(Instant::now());
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// What a client with a timeout of 200 ms makes of so many SETs.
    async fn load(
        course: &Course,
        (pipeline, total): (u32, u64),
        does: impl FnMut(u32) -> Then,
    ) -> Result<(), Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let set = json!({ "command": "Set", "valueBytes": 10, "keySpace": 100, "pipeline": pipeline });
        let fault = json!({ "kind": "Stop", "after": "1s", "duration": "1s" });
        let load = json!({ "connections": 1, "duration": "5s", "timeout": "200ms", "fault": fault });
        let job = json!({
            "run": "r", "arm": "a", "trial": 0, "seed": 7, "endpoints": [endpoint], "strikesMembers": true,
            "workloads": [{ "name": "w", "redis": set, "load": load }],
        });
        let spec = specification::parse(&job.to_string()).unwrap();
        let context = Arc::new(specification::context(&spec, 0, Share::WHOLE).unwrap());
        let plan = Arc::new(Plan::new(&context, &serde_json::from_value(set).unwrap()));
        let budget = Some(Arc::new(AtomicU64::new(total)));
        let session = Session::alone(context.patience(Phase::Measure), Source::Closed { budget, deadline: None });
        let seat = Rc::new(Seat { context, thread: 0, connections: vec![0], clients: vec![0] });
        let client = async {
            let redis = Redis::connect(plan, seat).await?;
            requests(&redis, &session, course).await
        };
        let ended = tokio::select! {
            ended = client => ended,
            ended = serve(listener, does) => ended,
            ended = watchdog(&session) => ended,
        };
        assert!(!session.is_stopped(), "clients bound their requests themselves");
        ended
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_in_a_fault_fails_no_store() {
        let course = Course::struck(Duration::ZERO).unwrap();
        let mut asked = 0;
        let ended = load(&course, (1, 4), |batch| {
            asked = batch;
            if batch < 3 { Then::Nothing } else { OK }
        });
        assert_eq!(ended.await, Ok(()));
        assert_eq!(asked, 4);
        // The same when it is over.
        course.is_back();
        let said = load(&course, (1, 4), |_| Then::Nothing).await.unwrap_err();
        assert_eq!(said.text(), "no answer within 200ms");
    }

    #[tokio::test]
    async fn a_connection_may_break_after_the_fault_only_if_it_was_not_used_since() {
        for (used, is_right) in [(1, true), (2, false), (5, false)] {
            let course = Course::struck(Duration::ZERO).unwrap();
            let ended = load(&course, (1, 10), |batch| {
                if batch == 1 {
                    course.is_back();
                }
                if batch == used + 1 { Then::HangUp } else { OK }
            });
            let ended = ended.await;
            assert_eq!(ended.is_ok(), is_right, "{used} were answered: {ended:?}");
        }
    }

    #[tokio::test]
    async fn a_batch_that_fails_was_acknowledged_when_its_last_reply_came() {
        // It is due to be back before the client gives up what is missing.
        let course = Course::struck(Duration::from_millis(150)).unwrap();
        assert_eq!(load(&course, (2, 2), |batch| if batch == 1 { OK } else { Then::Nothing }).await, Ok(()));
        assert!(!course.has_recovered(), "nothing came after the fault");
        let course = Course::struck(Duration::ZERO).unwrap();
        assert_eq!(load(&course, (2, 2), |batch| if batch == 1 { OK } else { Then::Nothing }).await, Ok(()));
        assert!(course.has_recovered());
        // An error is no acknowledgement, and takes none away that came with it.
        for (said, is_right) in [(b"+OK\r\n-ERR no\r\n".as_slice(), true), (b"-ERR no\r\n".as_slice(), false)] {
            let course = Course::struck(Duration::ZERO).unwrap();
            assert_eq!(load(&course, (2, 2), |_| Then::Say(said)).await, Ok(()));
            assert_eq!(course.has_recovered(), is_right);
        }
    }
}
