//! `status` and `sync`: the verbs that ask a replicator at work what [`super::control`] answers.

use super::control::{HEAD, TIMEOUT_SECONDS_MAX};
use super::table;
use anyhow::Context as _;
use http::StatusCode;
use serde_json::Value;
use service_kit::console::OneLine;
use service_kit::url::Url;
use service_kit::{console, percent};
use std::path::Path;
use std::time::Duration;
use walsync::store::http::{agent, first_words};

/// From the end of what was waited for to the answer, at most.
const ANSWER: Duration = Duration::from_secs(10);
/// Of an answer: some hundred bytes for each database.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// How `status` tells what it was told.
#[derive(Clone, Copy, Default)]
pub struct Told {
    /// In JSON.
    pub in_json: bool,
    /// It is an error if a database is not well, or has been at risk for longer than so many seconds.
    pub at_risk_max: Option<f64>,
}

/// `status`: prints how each database stands, or one of them.
pub fn status(replicator: &Url, database: Option<&Path>, how: Told) -> anyhow::Result<()> {
    let all = ask(replicator, "/status", ANSWER)?;
    let mut lines: Vec<&str> = all.lines().skip(1).collect();
    if let Some(database) = database {
        let path = OneLine(std::path::absolute(database)?.display()).to_string();
        lines.retain(|line| line.split('\t').next() == Some(&path));
        anyhow::ensure!(!lines.is_empty(), "{path} is not watched there");
    }
    if how.in_json {
        let objects = lines.iter().map(|line| Line::of(line).map(|line| line.object())).collect::<Option<Vec<Value>>>();
        let objects = objects.with_context(|| format!("{replicator}: its answer is none of walsync's"))?;
        console::print(format_args!("{:#}\n", Value::Array(objects)))?;
    } else {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        table::print(&format!("{HEAD}\n{lines}"))?;
    }
    let Some(most) = how.at_risk_max else { return Ok(()) };
    let bad: Vec<&&str> = lines.iter().filter(|line| Line::of(line).is_none_or(|line| line.is_bad(most))).collect();
    match bad.as_slice() {
        [] => Ok(()),
        [one] => anyhow::bail!("1 database is not well: {}", one.replace('\t', " ")),
        [first, ..] => anyhow::bail!("{} databases are not well, the first: {}", bad.len(), first.replace('\t', " ")),
    }
}

/// A line of a status, as [`super::control`] writes it.
struct Line<'a> {
    database: &'a str,
    phase: &'a str,
    why: Option<&'a str>,
    durable_txid: u64,
    committed: Option<&'a str>,
    at_risk_seconds: f64,
}

impl Line<'_> {
    fn of(line: &str) -> Option<Line<'_>> {
        let [database, state, txid, committed, at_risk] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        // `running; a snapshot is late` and `refused: why`.
        let end = state.find([':', ';']).unwrap_or(state.len());
        let why = state.get(end + 1..).map(str::trim).filter(|why| !why.is_empty());
        Some(Line {
            database,
            phase: &state[..end],
            why,
            durable_txid: txid.parse().ok()?,
            committed: Some(committed).filter(|committed| *committed != "-"),
            at_risk_seconds: at_risk.parse().ok()?,
        })
    }

    fn object(&self) -> Value {
        serde_json::json!({
            "database": self.database,
            "state": self.phase,
            "why": self.why,
            "durable_txid": self.durable_txid,
            "committed": self.committed,
            "at_risk_seconds": self.at_risk_seconds,
        })
    }

    /// Whether what is committed is not sent, and somebody should look. One that waits for its file has nothing to send.
    fn is_bad(&self, at_risk_max: f64) -> bool {
        !["running", "waiting"].contains(&self.phase) || self.at_risk_seconds > at_risk_max
    }
}

/// `sync`: waits until a transaction of a database is durable, or everything that is committed now.
pub fn sync(replicator: &Url, database: &Path, txid: Option<u64>, timeout: Duration) -> anyhow::Result<()> {
    let database = std::path::absolute(database)?;
    let txid = txid.map_or(String::new(), |txid| format!("&txid={txid}"));
    let database = percent::encoded(&database.to_string_lossy());
    let timeout = timeout.min(Duration::from_secs(TIMEOUT_SECONDS_MAX));
    let path = format!("/sync?database={database}&timeout_seconds={}{txid}", timeout.as_secs());
    Ok(console::print(format_args!("{}", ask(replicator, &path, timeout + ANSWER)?))?)
}

/// One GET of a replicator at work, which is over after `limit`, however slowly the answer comes.
fn ask(replicator: &Url, path: &str, limit: Duration) -> anyhow::Result<String> {
    let agent = agent("walsync", false, limit, None)?;
    // It is asked itself: a proxy of the environment would look for the address on its own machine.
    let request = agent.get(format!("{replicator}{path}")).config().timeout_global(Some(limit)).proxy(None).build();
    let answer = request
        .call()
        .map_err(|error| anyhow::anyhow!("{replicator}: {error}; is walsync at work there, with --listen?"))?;
    let status = answer.status();
    let text = answer.into_body().into_with_config().limit(ANSWER_BYTES_MAX).read_to_string();
    let text = text.map_err(|error| anyhow::anyhow!("{replicator}: its answer was cut short: {error}"))?;
    if text.trim_start().starts_with('<') {
        let (status, words) = (status.as_u16(), first_words(&text));
        anyhow::bail!("{replicator} answered {status}, \"{words}\": that is not walsync; is the address right?");
    }
    anyhow::ensure!(status == StatusCode::OK, "{}", text.trim_end());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    const LIMIT: Duration = Duration::from_millis(500);
    const PATIENT: Duration = Duration::from_secs(60);

    fn url(server: &TcpListener) -> Url {
        format!("http://{}", server.local_addr().unwrap()).parse().unwrap()
    }

    /// What comes of asking a server that takes one request and answers with these bytes.
    fn answered(
        limit: Duration,
        answer: impl FnOnce(TcpStream) + Send + 'static,
    ) -> (anyhow::Result<String>, Duration) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = url(&server);
        std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            answer(stream);
        });
        let began = Instant::now();
        (ask(&url, "/status", limit), began.elapsed())
    }

    fn says(answer: &str) -> anyhow::Result<String> {
        let answer = answer.to_owned();
        answered(PATIENT, move |mut stream| stream.write_all(answer.as_bytes()).unwrap()).0
    }

    #[test]
    fn an_answer_is_taken_whole_and_a_refusal_is_told() {
        assert_eq!(says("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabc\n").unwrap(), "abc\n");
        let refused = says("HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nwhat\n").unwrap_err();
        assert_eq!(refused.to_string(), "what");
        let page = "<html><title>404</title>\n<p>Not here</p></html>";
        for head in ["404 Not Found\r\n", "200 OK\r\n"] {
            let said =
                says(&format!("HTTP/1.1 {head}content-length: {}\r\n\r\n{page}", page.len())).unwrap_err().to_string();
            assert!(
                said.contains(&format!("answered {}, \"404 Not here\": that is not walsync", &head[..3])),
                "{said}"
            );
        }
        let foreign = says("SSH-2.0-OpenSSH_9.2\r\n").unwrap_err().to_string();
        assert!(foreign.contains("walsync") && foreign.lines().count() == 1, "{foreign}");
    }

    #[test]
    fn a_line_of_a_status_is_told_in_json_and_judged() {
        let object = |line: &str| Line::of(line).unwrap().object().to_string();
        let refused = object("/a b.db\trefused: not in WAL mode: why\t0\t-\t7.500");
        assert!(refused.contains("\"database\":\"/a b.db\"") && refused.contains("\"state\":\"refused\""), "{refused}");
        assert!(
            refused.contains("\"why\":\"not in WAL mode: why\"") && refused.contains("\"committed\":null"),
            "{refused}"
        );
        assert!(object("/a.db\trunning\t7\t2026-01-01T00:00:00Z\t0.000").contains("\"why\":null"));
        let is_bad =
            |state: &str, at_risk: &str| Line::of(&format!("/a.db\t{state}\t7\t-\t{at_risk}")).unwrap().is_bad(60.0);
        for state in ["refused: why", "failing: why", "stalled: why", "fenced: why"] {
            assert!(is_bad(state, "0.000"), "{state}");
        }
        for state in ["running", "running; a snapshot is 7 s late: why", "waiting: there is no such file"] {
            assert!(!is_bad(state, "60.000") && is_bad(state, "60.001"), "{state}");
        }
        assert!(Line::of("nothing").is_none() && Line::of("/a.db\trunning\tx\t-\t0").is_none());
    }

    #[test]
    fn an_answer_that_is_cut_short_is_none() {
        let cut = says("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n/data/app.db\trunning");
        let said = cut.unwrap_err().to_string();
        assert!(said.starts_with("http://127.0.0.1:") && said.contains("was cut short"), "{said}");
    }

    #[test]
    fn an_answer_that_never_ends_is_given_up() {
        let (result, took) = answered(LIMIT, |mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            // No read waits for long.
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert!(result.is_err());
    }

    #[test]
    fn an_answer_without_a_bound_fills_no_memory() {
        let (result, _) = answered(PATIENT, |mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            let piece = vec![b'x'; 1 << 20];
            for _ in 0..(2 * ANSWER_BYTES_MAX) >> 20 {
                if stream.write_all(&piece).is_err() {
                    return;
                }
            }
        });
        let said = result.map(|text| text.len()).unwrap_err().to_string();
        assert!(said.lines().count() == 1, "{said}");
    }

    #[test]
    fn nobody_waits_for_a_connection_that_does_not_come() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        // Nobody accepts: when the queue is full the kernel lets whoever comes try again, for two minutes.
        let wait = Duration::from_millis(300);
        let queue: Vec<_> =
            std::iter::from_fn(|| TcpStream::connect_timeout(&address, wait).ok()).take(10_000).collect();
        assert!(queue.len() < 10_000);
        let began = Instant::now();
        let said = ask(&url(&server), "/status", LIMIT).unwrap_err().to_string();
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert!(said.contains("is walsync at work there"), "{said}");
    }

    #[test]
    fn who_would_wait_for_ever_waits_for_as_long_as_a_replicator_lets_him() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = url(&server);
        drop(server);
        let refused = sync(&nobody, Path::new("/app.db"), None, Duration::from_secs(u64::MAX)).unwrap_err().to_string();
        assert!(refused.contains("is walsync at work there"), "{refused}");
    }
}
