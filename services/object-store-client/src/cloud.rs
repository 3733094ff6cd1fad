//! What the clients of Google's and of Azure's store share: a server, and what they make of attributes.

use crate::http::{Answer, Client, Paced, Request, parse_endpoint};
use crate::{Attributes, Body, StoreError};
use std::io::{Read, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// Bytes of a part where nobody says otherwise: larger objects are sent in parts.
pub(crate) const PART_BYTES: u64 = 256 << 20;
/// A page of a listing: it has five thousand objects at most.
pub(crate) const LISTING_BYTES_MAX: u64 = 32 << 20;

/// A store's server.
pub(crate) struct Server {
    /// `https://host[:port][/path]`, without a slash at its end.
    pub endpoint: String,
    client: Client,
}

impl Server {
    /// Connects at the first call.
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: that is no endpoint, or there are no certificates to trust.
    pub fn new(endpoint: &str, timeout: Duration, certificates: Option<&Path>) -> Result<Server, StoreError> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let (scheme, _) = parse_endpoint(&endpoint, true)?;
        let client = Client::new(scheme == "https", timeout, certificates)?;
        Ok(Server { endpoint, client })
    }

    /// See [`Client::send`].
    pub fn send(&self, request: Request, body: Option<(&mut dyn Read, u64)>) -> Result<Answer, StoreError> {
        self.client.send(request, body)
    }

    /// What an answer holds.
    pub fn body(&self, answer: Answer) -> Paced<ureq::BodyReader<'static>> {
        self.client.body(answer)
    }

    /// The text of an answer, or so many bytes of it.
    pub fn text(&self, answer: Answer, bytes_max: u64) -> Result<String, StoreError> {
        let mut bytes = Vec::new();
        self.body(answer).take(bytes_max).read_to_end(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| StoreError::Transient("the store's answer is no text".into()))
    }

    /// See [`Client::text_of_failure`].
    pub fn text_of_failure(&self, answer: Answer) -> String {
        self.client.text_of_failure(answer)
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
