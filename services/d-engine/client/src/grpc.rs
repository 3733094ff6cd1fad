//! A small gRPC client on the `h2` crate: unary calls and streams over one connection, all of them at a time, with TLS or without.
//!
//! Whatever a server sends, a call ends in an answer or a [`GrpcError`], and so it does where the server hangs: one that is silent for 2 s
//! though it is asked is left. Nothing is repeated. Source of the protocol: grpc/grpc `doc/PROTOCOL-HTTP2.md`.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::header::{AUTHORIZATION, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Request, StatusCode, Uri, Version};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::pulse::{Heard, Pulse, SILENCE_MAX};
use crate::{Credentials, Error, Tls};

/// Bytes in front of a message: whether it is compressed, and its length.
const HEAD_BYTES: usize = 5;
/// The longest answer, bytes.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// What a server may send ahead on a stream, bytes.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// The same of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// For the first bytes of a server that has taken the connection.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrpcError {
    /// Nobody is there.
    #[error("{0}")]
    Connect(String),
    /// The connection broke, or something came that is no gRPC. The server may have carried the request out.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The server's own word.
    #[error("{}: {message}", name_of(*.code))]
    Status {
        /// A status code of gRPC, never 0.
        code: u8,
        /// What it says.
        message: String,
        /// The header `x-raft-leader`, if there is one.
        leader: Option<String>,
    },
}

/// The names of the codes of statuses, from 0, as gRPC has them.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

fn name_of(code: u8) -> String {
    NAMES.get(usize::from(code)).map_or_else(|| format!("status {code}"), |name| (*name).to_owned())
}

/// UNAUTHENTICATED: nothing was carried out.
const UNAUTHENTICATED: u8 = 16;

impl GrpcError {
    /// What a call or a stream that ended so has come to, if that can be said.
    pub(crate) fn denied(&self) -> Option<Error> {
        match self {
            Self::Status { code: UNAUTHENTICATED, message, .. } => Some(Error::Denied(message.clone())),
            _ => None,
        }
    }
}

impl From<h2::Error> for GrpcError {
    fn from(error: h2::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// A connection. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Channel {
    requests: SendRequest<Bytes>,
    scheme: Scheme,
    authority: Authority,
    authorization: Option<HeaderValue>,
    pulse: Arc<Pulse>,
}

/// A socket, or TLS on one.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

// Whatever it is written to, HTTP/2 is compiled once.
async fn handshake(socket: Box<dyn Socket>, pulse: &Arc<Pulse>) -> Result<SendRequest<Bytes>, h2::Error> {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let (requests, mut connection) = builder.handshake(Heard { socket, pulse: Arc::clone(pulse) }).await?;
    let pings = connection.ping_pong();
    // A server speaks first. One that hangs, or speaks something else, shows before anything is sent to it.
    tokio::select! {
        biased;
        ended = &mut connection => return Err(ended.err().unwrap_or(Reason::PROTOCOL_ERROR.into())),
        () = pulse.heard() => {}
        () = sleep(FIRST_WORD) => return Err(Reason::SETTINGS_TIMEOUT.into()),
    }
    // Its error is told to every call.
    let connection = tokio::spawn(async move { drop(connection.await) });
    if let Some(pings) = pings {
        tokio::spawn(Arc::clone(pulse).watch(pings, connection.abort_handle()));
    }
    Ok(requests)
}

/// The address of an endpoint: `host:port` without what may stand around it; or what is wrong with it.
pub fn address_of(endpoint: &str) -> Result<&str, String> {
    let trimmed = endpoint.trim();
    let address = trimmed.strip_prefix("https://").or_else(|| trimmed.strip_prefix("http://")).unwrap_or(trimmed);
    let address = address.trim_end_matches('/');
    let has_port = |authority: Authority| authority.port_u16().is_some() && !authority.host().is_empty();
    let is_address = !address.contains('@') && Authority::try_from(address).is_ok_and(has_port);
    is_address.then_some(address).ok_or_else(|| format!("{endpoint:?} is no address of a member: expected HOST:PORT"))
}

/// The same, if it can be spoken to so.
pub(crate) fn address_by<'a>(endpoint: &'a str, tls: Option<&Tls>) -> Result<&'a str, String> {
    let address = address_of(endpoint)?;
    if tls.is_none() && endpoint.trim().starts_with("https://") {
        return Err(format!(
            "{address} is spoken to by TLS: say who signs its certificate (--tls-authority, Options::tls)"
        ));
    }
    Ok(address)
}

impl Channel {
    /// Connects to `host:port`, with or without `http://`; on a tokio runtime.
    pub async fn connect(endpoint: &str) -> Result<Self, GrpcError> {
        Self::connect_with(endpoint, None).await
    }

    /// The same, with TLS where that is given: then also `https://` may stand in front.
    pub async fn connect_with(endpoint: &str, tls: Option<&Tls>) -> Result<Self, GrpcError> {
        let address = address_by(endpoint, tls).map_err(GrpcError::Connect)?;
        let said = |error: &dyn std::fmt::Display| GrpcError::Connect(format!("{address}: {error}"));
        let authority = Authority::try_from(address).map_err(|error| said(&error))?;
        let socket = TcpStream::connect(address).await.map_err(|error| said(&error))?;
        // Requests are written whole: waiting for more would only delay them.
        socket.set_nodelay(true).map_err(|error| said(&error))?;
        let pulse = Arc::default();
        let requests = match tls {
            None => handshake(Box::new(socket), &pulse).await,
            Some(tls) => {
                let socket = tls.connect(socket, authority.host()).await;
                handshake(Box::new(socket.map_err(|error| said(&error))?), &pulse).await
            }
        };
        let requests = requests.map_err(|error| {
            let hint = match tls {
                None => "is this the port for clients, and does the member speak without TLS (else name --tls-authority, Options::tls)?",
                Some(_) => "is this the port for clients, and does the member take certificates such as the one that was shown, if any was?",
            };
            said(&format!("no HTTP/2 is spoken there ({error}): {hint}"))
        })?;
        let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        Ok(Self { requests, scheme, authority, authorization: None, pulse })
    }

    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// The same connection, with these credentials in every call.
    #[must_use]
    pub fn signed_in(self, credentials: Option<&Credentials>) -> Self {
        Self { authorization: credentials.map(Credentials::header), ..self }
    }

    /// Sends one message and waits for the one that answers it. `path` is `/package.Service/Method`.
    pub async fn unary<B: Message + Default>(
        &self,
        path: &'static str,
        request: &impl Message,
    ) -> Result<B, GrpcError> {
        let _waiting = self.pulse.wait();
        let (response, _) = self.open(path, frame(request), true).await?;
        let mut answers = Answers::<B>::new(response, Arc::clone(&self.pulse));
        let answer = answers.next().await?.ok_or_else(|| GrpcError::Broken("success without a message".into()))?;
        // The status comes behind the message.
        match answers.next().await? {
            None => Ok(answer),
            Some(_) => Err(GrpcError::Broken("more than one message answers a unary call".into())),
        }
    }

    /// Opens a stream with its first message; what `is_only` has no other.
    pub async fn stream<A: Message, B: Message + Default>(
        &self,
        path: &'static str,
        first: &A,
        is_only: bool,
    ) -> Result<(Questions<A>, Answers<B>), GrpcError> {
        let (response, body) = self.open(path, frame(first), is_only).await?;
        let pulse = Arc::clone(&self.pulse);
        Ok((Questions { body, kind: PhantomData }, Answers::new(response, pulse)))
    }

    async fn open(
        &self,
        path: &'static str,
        first: Bytes,
        is_only: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), GrpcError> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(PathAndQuery::from_static(path));
        let uri = Uri::from_parts(parts).map_err(|error| GrpcError::Broken(error.to_string()))?;
        let mut request = Request::post(uri)
            .version(Version::HTTP_2)
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(())
            .map_err(|error| GrpcError::Broken(error.to_string()))?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let mut requests = self.requests.clone();
        poll_fn(|context| requests.poll_ready(context)).await?;
        let (response, mut body) = requests.send_request(request, false)?;
        body.send_data(first, is_only)?;
        Ok((response, body))
    }
}

/// A message in its frame.
fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(length as u32);
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

/// The way to the server of a stream.
pub struct Questions<A> {
    body: SendStream<Bytes>,
    kind: PhantomData<A>,
}

impl<A: Message> Questions<A> {
    /// Sends a message, as soon as the server has room for it.
    pub async fn send(&mut self, message: &A) -> Result<(), GrpcError> {
        let mut bytes = frame(message);
        while !bytes.is_empty() {
            self.body.reserve_capacity(bytes.len());
            let room = match self.body.capacity() {
                0 => poll_fn(|context| self.body.poll_capacity(context)).await,
                room => Some(Ok(room)),
            };
            let room = room.ok_or_else(|| GrpcError::Broken("the stream has ended".into()))??;
            self.body.send_data(bytes.split_to(room.min(bytes.len())), false)?;
        }
        Ok(())
    }
}

enum State {
    Waiting(BoxFuture<'static, Result<http::Response<RecvStream>, h2::Error>>),
    Reading(RecvStream),
    Over,
}

/// The answers of a call.
pub struct Answers<B> {
    state: State,
    received: BytesMut,
    pulse: Arc<Pulse>,
    kind: PhantomData<fn() -> B>,
}

impl<B: Message + Default> Answers<B> {
    fn new(response: ResponseFuture, pulse: Arc<Pulse>) -> Self {
        Self { state: State::Waiting(Box::pin(response)), received: BytesMut::new(), pulse, kind: PhantomData }
    }

    /// The next answer; `None`: there was the last one, and the call has succeeded.
    pub async fn next(&mut self) -> Result<Option<B>, GrpcError> {
        let next = self.take_next().await;
        next.map_err(|error| match error {
            GrpcError::Broken(_) if self.pulse.is_dead() => {
                GrpcError::Broken(format!("the member was silent for {} s", SILENCE_MAX.as_secs()))
            }
            error => error,
        })
    }

    async fn take_next(&mut self) -> Result<Option<B>, GrpcError> {
        loop {
            match &mut self.state {
                State::Over => return Ok(None),
                State::Waiting(response) => {
                    let (head, body) = response.await?.into_parts();
                    if head.headers.contains_key("grpc-status") {
                        self.state = State::Over;
                        status_of(&head.headers)?;
                        return Ok(None);
                    }
                    if head.status != StatusCode::OK {
                        self.state = State::Over;
                        return Err(GrpcError::Broken(format!("HTTP status {}", head.status)));
                    }
                    self.state = State::Reading(body);
                }
                State::Reading(body) => {
                    if let Some(message) = take(&mut self.received)? {
                        return B::decode(message).map(Some).map_err(|error| GrpcError::Broken(error.to_string()));
                    }
                    match body.data().await {
                        Some(chunk) => {
                            let chunk = chunk?;
                            // An error: the stream has ended, which shows next.
                            let _ = body.flow_control().release_capacity(chunk.len());
                            self.received.extend_from_slice(&chunk);
                        }
                        None => {
                            let trailers = body.trailers().await?.unwrap_or_default();
                            self.state = State::Over;
                            status_of(&trailers)?;
                            if !self.received.is_empty() {
                                return Err(GrpcError::Broken("the answer ends within a message".into()));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The first message, when it is there in full.
fn take(received: &mut BytesMut) -> Result<Option<Bytes>, GrpcError> {
    let Some(head) = received.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if head[0] != 0 || length > MESSAGE_BYTES_MAX {
        return Err(GrpcError::Broken(format!("a message of {length} bytes, compressed flag {}", head[0])));
    }
    if received.len() - HEAD_BYTES < length {
        return Ok(None);
    }
    let mut message = received.split_to(HEAD_BYTES + length);
    message.advance(HEAD_BYTES);
    Ok(Some(message.freeze()))
}

fn status_of(headers: &HeaderMap) -> Result<(), GrpcError> {
    let text = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    match text("grpc-status").and_then(|code| code.parse::<u8>().ok()) {
        Some(0) => Ok(()),
        Some(code) => {
            let message = percent_decode(&text("grpc-message").unwrap_or_default());
            Err(GrpcError::Status { code, message, leader: text("x-raft-leader") })
        }
        None => Err(GrpcError::Broken("no status".into())),
    }
}

fn percent_decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    // Numbers are not parsed: they may have a sign.
    let digit = |byte: u8| char::from(byte).to_digit(16);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%'
            && let [high, low, after @ ..] = after
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            out.push((high << 4 | low) as u8);
            rest = after;
        } else {
            out.push(byte);
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_come_out_of_any_cuts(messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..5), size in 1_usize..9) {
            let whole: Vec<u8> = messages.iter().flat_map(|message| {
                [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat()
            }).collect();
            let mut received = BytesMut::new();
            let mut found = Vec::new();
            for piece in whole.chunks(size) {
                received.extend_from_slice(piece);
                while let Some(message) = take(&mut received).unwrap() {
                    found.push(message.to_vec());
                }
            }
            prop_assert_eq!(found, messages);
        }

        #[test]
        fn any_text_is_decoded(text in "[%0-9a-fA-Fxyzö]{0,12}") {
            percent_decode(&text);
        }
    }

    #[test]
    fn two_digits_are_a_byte_and_a_sign_is_no_digit() {
        for (encoded, decoded) in [("%41%", "A%"), ("%+f", "%+f"), ("%4", "%4"), ("%zz%2F", "%zz/")] {
            assert_eq!(percent_decode(encoded), decoded);
        }
    }

    #[test]
    fn a_status_is_read_from_trailers() {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", "9".parse().unwrap());
        headers.insert("grpc-message", "Not%20leader%".parse().unwrap());
        headers.insert("x-raft-leader", "{}".parse().unwrap());
        let status = GrpcError::Status { code: 9, message: "Not leader%".into(), leader: Some("{}".into()) };
        assert_eq!(status.to_string(), "FAILED_PRECONDITION: Not leader%");
        assert_eq!(status_of(&headers), Err(status));
        assert!(matches!(status_of(&HeaderMap::new()), Err(GrpcError::Broken(_))));
    }
}
