//! What the clients of Google's and of Azure's store share: requests over one pool of connections, at the rate that is asked of a store, and
//! what an answer of failure means.

use crate::http::{Paced, agent, body_time};
use crate::{Attributes, Body, StoreError};
use std::io::{Read, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// Tries of one part of an object.
pub(crate) const TRIES: u32 = 3;
/// Bytes of a part where nobody says otherwise: larger objects are sent in parts.
pub(crate) const PART_BYTES: u64 = 256 << 20;
/// A page of a listing: it has five thousand objects at most.
pub(crate) const LISTING_BYTES_MAX: u64 = 32 << 20;

pub(crate) type Answer = ureq::http::Response<ureq::Body>;

/// One request, whole.
pub(crate) struct Request {
    pub method: &'static str,
    /// Without its query, which may hold a secret: errors name it.
    pub place: String,
    /// Encoded.
    pub query: String,
    pub headers: Vec<(String, String)>,
    /// Bytes that the server has to move before it answers.
    pub work_bytes: u64,
}

/// A store's server.
pub(crate) struct Server {
    /// `https://host[:port][/path]`, without a slash at its end.
    pub endpoint: String,
    agent: ureq::Agent,
    timeout: Duration,
}

impl Server {
    /// Connects at the first call.
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: that is no endpoint, or there are no certificates to trust.
    pub fn new(endpoint: &str, timeout: Duration, certificates: Option<&Path>) -> Result<Server, StoreError> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let is_meant = |(scheme, host): (&str, &str)| !host.is_empty() && ["http", "https"].contains(&scheme);
        if !endpoint.split_once("://").is_some_and(is_meant) || endpoint.contains('?') {
            let text = format!("endpoint \"{endpoint}\": write it as https://host or http://host:port");
            return Err(StoreError::Permanent(text));
        }
        let agent = agent(endpoint.starts_with("https://"), timeout, certificates)?;
        Ok(Server { endpoint, agent, timeout })
    }

    /// Sends a request, with `length` bytes of a body where it has one; answers of every status are answers.
    pub fn send(&self, request: Request, body: Option<(&mut dyn Read, u64)>) -> Result<Answer, StoreError> {
        let Request { method, place, query, headers, work_bytes } = request;
        let separator = if query.is_empty() { "" } else { "?" };
        let mut builder = ureq::http::Request::builder().method(method).uri(format!("{place}{separator}{query}"));
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        let failed = |error: ureq::Error| StoreError::Transient(format!("{method} {place}: {error}"));
        let malformed = |error: ureq::http::Error| StoreError::Permanent(format!("{method} {place}: {error}"));
        let most = |length| Some(body_time(self.timeout, length));
        let Some((mut body, length)) = body else {
            return self.agent.run(builder.body(()).map_err(malformed)?).map_err(failed);
        };
        let body = ureq::SendBody::from_reader(&mut body);
        let request = builder.header("content-length", length).body(body).map_err(malformed)?;
        let request = self.agent.configure_request(request).timeout_send_body(most(length));
        // A read that waits for the head of an answer is a read, too.
        let request = request.timeout_recv_response(most(work_bytes)).timeout_per_read(most(work_bytes)).build();
        self.agent.run(request).map_err(failed)
    }

    /// What an answer holds.
    pub fn body(&self, answer: Answer) -> Paced<ureq::BodyReader<'static>> {
        Paced::new(answer.into_body().into_reader(), self.timeout)
    }

    /// The text of an answer, or so many bytes of it.
    pub fn text(&self, answer: Answer, bytes_max: u64) -> Result<String, StoreError> {
        let mut bytes = Vec::new();
        self.body(answer).take(bytes_max).read_to_end(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| StoreError::Transient("the store's answer is no text".into()))
    }

    /// The text of an answer of failure: what there is of it.
    pub fn text_of_failure(&self, answer: Answer) -> String {
        let mut bytes = Vec::new();
        let _ = self.body(answer).take(4096).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// What an answer of failure means, but for what is there or is not: that each store says in its own words.
pub(crate) fn failure(status: u16, code: &str, key: &str, place: &str) -> StoreError {
    let separator = if code.is_empty() { "" } else { " " };
    match status {
        408 | 409 | 425 | 429 | 500 | 502..=599 => {
            StoreError::Transient(format!("the store answered {status}{separator}{code} for {key}"))
        }
        _ => StoreError::Permanent(format!("the store answered {status}{separator}{code} for {key} in {place}")),
    }
}

/// Refuses a body that is shorter than announced, and turns to its start.
pub(crate) fn check_length(key: &str, body: &mut dyn Body, length: u64) -> Result<(), StoreError> {
    if body.seek(SeekFrom::End(0))? < length {
        return Err(StoreError::Permanent(format!("{key}: its content is shorter than announced")));
    }
    body.seek(SeekFrom::Start(0))?;
    Ok(())
}

/// What is kept of [`Attributes`] as words and values.
pub(crate) fn metadata(attributes: &Attributes, name: impl Fn(&str) -> String) -> Vec<(String, String)> {
    attributes.metadata.iter().map(|(word, value)| (name(word), value.clone())).collect()
}

/// The time that an object has: that of its metadata where it is one, or else that of its listing.
pub(crate) fn modified_millis(said: Option<&str>, listed: Option<jiff::Timestamp>) -> i64 {
    let said = said.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    said.or(listed).map_or(0, |time| time.as_millisecond())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    /// Requests, whole.
    pub(crate) type Seen = Arc<Mutex<Vec<String>>>;

    /// A server that notes each request, and answers it as told by its text and number, which begins with 1; then it closes the connection.
    pub(crate) fn answering(mut answer: impl FnMut(&str, usize) -> String + Send + 'static) -> (String, Seen) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let seen = Seen::default();
        let notes = seen.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = BufReader::new(socket.unwrap());
                let (mut request, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    socket.read_line(&mut line).unwrap();
                    let field = line.to_ascii_lowercase();
                    length =
                        field.strip_prefix("content-length: ").map_or(length, |length| length.trim().parse().unwrap());
                    request.push_str(&line);
                    if line.trim().is_empty() {
                        break;
                    }
                }
                let mut body = vec![0; length];
                socket.read_exact(&mut body).unwrap();
                request.push_str(&String::from_utf8_lossy(&body));
                let mut notes = notes.lock().unwrap();
                notes.push(request);
                let text = answer(&notes[notes.len() - 1], notes.len());
                let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
                let length = body.len();
                let answer = format!("{head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
                let _ = socket.into_inner().write_all(answer.as_bytes());
            }
        });
        (endpoint, seen)
    }
}
