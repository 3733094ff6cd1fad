//! Azure Blob Storage: requests over one pool of connections, with a time limit each, bodies included, signed by the account's key, with a shared
//! access signature, or with a token on loan.
//!
//! An object is created by one request with `If-None-Match: *`, so that two writers cannot both believe in one object. A large one is sent in
//! blocks, read from the body one after another and held nowhere; the request that makes them one has the condition. Before that nobody sees
//! anything of it, and what an upload that fails leaves the store forgets after a week.

use crate::cloud::{LISTING_BYTES_MAX, PART_BYTES, Server, check_length, metadata, modified_millis};
use crate::encoding::encode;
use crate::http::{Answer, Request, TRIES, bytes_of, failure, first_words, is_near, object_bytes_of};
use crate::listing::{Pages, element};
use crate::token::Token;
use crate::{Attributes, Body, Object, Part, Store, StoreError, retry};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use std::io::{Cursor, Read, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// Of the interface: everything that is used here is in it, and every server of today knows it.
const VERSION: &str = "2021-08-06";
/// Blocks of an object at most.
const BLOCKS_MAX: u64 = 50_000;

/// Where a container is.
#[derive(Clone, Debug)]
pub struct AzureSettings {
    /// The storage account.
    pub account: String,
    /// The container.
    pub container: String,
    /// `https://host[:port][/path]`, or `http://`.
    pub endpoint: String,
    /// For one request without its body, and for each read of an answer; a body may take this and a second for each 64 KiB, there and back.
    pub timeout: Duration,
    /// Certificates to trust for `https`, in PEM.
    pub certificates: Option<PathBuf>,
    /// The word of an object's metadata that has its time, where there is one: listings tell it. As that of metadata it is stored without what
    /// Azure does not take.
    pub time_word: Option<String>,
}

impl AzureSettings {
    /// A container of an account, at `endpoint` or else at Azure.
    pub fn new(account: &str, container: &str, endpoint: Option<&str>) -> AzureSettings {
        let at_azure = || format!("https://{account}.blob.core.windows.net");
        AzureSettings {
            account: account.to_owned(),
            container: container.to_owned(),
            endpoint: endpoint.map_or_else(at_azure, str::to_owned),
            timeout: Duration::from_secs(30),
            certificates: None,
            time_word: None,
        }
    }
}

/// Who we are.
pub enum AzureCredentials {
    /// The account's key.
    Key(hmac::Key),
    /// A shared access signature: parameters of every request.
    Signature(String),
    /// Somebody whom Azure lends tokens.
    Token(Token),
}

impl AzureCredentials {
    /// By an account's key, as Azure shows it.
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: it is none.
    pub fn key(text: &str) -> Result<AzureCredentials, StoreError> {
        let wrong = |_| StoreError::Permanent("the account's key is not in base64, as Azure shows it".into());
        Ok(AzureCredentials::Key(hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(text.trim()).map_err(wrong)?)))
    }

    /// By a shared access signature, with or without the `?` that stands before it in URLs.
    pub fn signature(text: &str) -> AzureCredentials {
        AzureCredentials::Signature(text.trim().trim_start_matches('?').to_owned())
    }

    /// As the environment says: `LITESTREAM_AZURE_SAS_TOKEN` or `AZURE_STORAGE_SAS_TOKEN`, `LITESTREAM_AZURE_ACCOUNT_KEY` or `AZURE_STORAGE_KEY`, or
    /// else by a token ([`Token::azure`]).
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: what is set cannot be meant.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Result<AzureCredentials, StoreError> {
        let either =
            |names: [&str; 2]| names.into_iter().find_map(|name| variable(name).filter(|text| !text.is_empty()));
        if let Some(text) = either(["LITESTREAM_AZURE_SAS_TOKEN", "AZURE_STORAGE_SAS_TOKEN"]) {
            return Ok(AzureCredentials::signature(&text));
        }
        match either(["LITESTREAM_AZURE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"]) {
            Some(text) => AzureCredentials::key(&text),
            None => Token::azure(variable).map(AzureCredentials::Token),
        }
    }
}

/// A container.
pub struct AzureStore {
    settings: AzureSettings,
    credentials: AzureCredentials,
    server: Server,
    /// What stands before paths in the endpoint: an emulator's account.
    path: String,
    /// Larger objects are sent in blocks of as many.
    part_bytes: u64,
}

/// A query as it is signed: names and values, not encoded.
type Parameters<'a> = &'a [(&'a str, &'a str)];

impl AzureStore {
    /// Connects at the first call.
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: the endpoint is none, or what everybody may use who hears it would go over a network in the clear.
    pub fn new(settings: AzureSettings, credentials: AzureCredentials) -> Result<AzureStore, StoreError> {
        let server = Server::new(&settings.endpoint, settings.timeout, settings.certificates.as_deref())?;
        let is_secret_sent = !matches!(credentials, AzureCredentials::Key(_));
        if is_secret_sent && server.endpoint.starts_with("http://") && !is_near(&server.endpoint) {
            let text = format!("endpoint {}: tokens and signatures of access are for https:// alone", server.endpoint);
            return Err(StoreError::Permanent(text));
        }
        let (_, host) = server.endpoint.split_once("://").unwrap_or_default();
        let path = host.split_once('/').map_or(String::new(), |(_, path)| format!("/{path}"));
        Ok(AzureStore { settings, credentials, server, path, part_bytes: PART_BYTES })
    }

    /// The same, which sends objects of more than `bytes` in blocks of so many, or in larger ones where there would be more than 50,000. Azure
    /// takes blocks of up to 4,000 MiB.
    pub fn sending_parts_of(self, bytes: u64) -> AzureStore {
        AzureStore { part_bytes: bytes.max(1), ..self }
    }

    /// A request of an object, or of the container where the key is empty.
    fn request(
        &self,
        method: &'static str,
        key: &str,
        parameters: Parameters<'_>,
        headers: Vec<(String, String)>,
        body_bytes: u64,
    ) -> Result<Request, StoreError> {
        let container = encode(&self.settings.container, false);
        let separator = if key.is_empty() { "" } else { "/" };
        let resource = format!("/{container}{separator}{}", encode(key, true));
        let time = jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let mut headers = headers;
        headers.push(("x-ms-date".into(), time));
        headers.push(("x-ms-version".into(), VERSION.into()));
        headers.sort();
        let encoded = parameters.iter().map(|(name, value)| format!("{name}={}", encode(value, false)));
        let mut query = encoded.collect::<Vec<_>>().join("&");
        match &self.credentials {
            AzureCredentials::Key(key) => {
                let path = format!("{}{resource}", self.path);
                let text = to_sign(method, &self.settings.account, &path, parameters, &headers, body_bytes);
                let signature = STANDARD.encode(hmac::sign(key, text.as_bytes()));
                headers.push(("authorization".into(), format!("SharedKey {}:{signature}", self.settings.account)));
            }
            AzureCredentials::Signature(signature) if query.is_empty() => query = signature.clone(),
            AzureCredentials::Signature(signature) => query = format!("{query}&{signature}"),
            AzureCredentials::Token(token) => {
                headers.push(("authorization".into(), format!("Bearer {}", token.current()?)));
            }
        }
        Ok(Request { method, place: format!("{}{resource}", self.server.endpoint), query, headers, work_bytes: 0 })
    }

    fn failure(&self, key: &str, answer: Answer) -> StoreError {
        self.failure_and_code(key, answer).0
    }

    /// The answer as an error, and what Azure calls that.
    fn failure_and_code(&self, key: &str, answer: Answer) -> (StoreError, String) {
        let status = answer.status().as_u16();
        let code = answer.headers().get("x-ms-error-code").and_then(|code| code.to_str().ok()).map(str::to_owned);
        let text = self.server.text_of_failure(answer);
        let code = code.or_else(|| element(&text, "Code")).unwrap_or_default();
        // A page is a proxy's: it tells nothing of an object.
        let is_page = code.is_empty() && !text.trim().is_empty();
        let words = format!("\"{}\"", first_words(&text));
        let code = if is_page { words } else { code };
        let error = match (status, code.as_str()) {
            (404, "ContainerNotFound") => {
                let container = &self.settings.container;
                StoreError::Permanent(format!(
                    "the store answered 404 ContainerNotFound: there is no container {container}"
                ))
            }
            (404, _) if !is_page => StoreError::NotFound(key.to_owned()),
            (412, _) | (409, "BlobAlreadyExists") => StoreError::AlreadyExists(key.to_owned()),
            (409, "BlobImmutableDueToPolicy") => {
                StoreError::Permanent(format!("a policy protects {key}: the store answered 409 {code}"))
            }
            _ => failure(status, &code, key, &format!("container {}", self.settings.container)),
        };
        (error, code)
    }

    fn metadata(&self, attributes: &Attributes) -> Vec<(String, String)> {
        metadata(attributes, |word| format!("x-ms-meta-{}", identifier(word)))
    }

    fn put_block(&self, key: &str, id: &str, body: &mut dyn Body, range: Range<u64>) -> Result<(), StoreError> {
        let bytes = range.end - range.start;
        let request = self.request("PUT", key, &[("blockid", id), ("comp", "block")], Vec::new(), bytes)?;
        body.seek(SeekFrom::Start(range.start))?;
        let answer = self.server.send(request, Some((&mut body.take(bytes), bytes)))?;
        if answer.status().is_success() { Ok(()) } else { Err(self.failure(key, answer)) }
    }

    fn create_in_blocks(
        &self,
        key: &str,
        body: &mut dyn Body,
        length: u64,
        attributes: &Attributes,
    ) -> Result<(), StoreError> {
        // A large one that would be refused in the end need not be sent.
        self.refuse_existing(key)?;
        let part_bytes = self.part_bytes.max(length.div_ceil(BLOCKS_MAX));
        // Blocks of two writers lie beside each other until one of them makes an object of his.
        let (writer, mut list, mut start) = (rand::random::<u64>(), String::new(), 0);
        while start < length {
            let end = length.min(start + part_bytes);
            let id = STANDARD.encode(format!("{writer:016x}{:08}", start / part_bytes));
            retry(TRIES, || self.put_block(key, &id, body, start..end))?;
            list.push_str(&format!("<Uncommitted>{id}</Uncommitted>"));
            start = end;
        }
        let text = format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{list}</BlockList>");
        let mut headers = self.metadata(attributes);
        headers.push(("if-none-match".into(), "*".into()));
        headers.push(("x-ms-blob-content-type".into(), "application/octet-stream".into()));
        let bytes = text.len() as u64;
        let mut request = self.request("PUT", key, &[("comp", "blocklist")], headers, bytes)?;
        request.work_bytes = length;
        let answer = self.server.send(request, Some((&mut Cursor::new(text), bytes)))?;
        match answer.status().as_u16() {
            200..=299 => Ok(()),
            // Blocks go when somebody else's become the object.
            400 => {
                let (error, code) = self.failure_and_code(key, answer);
                self.refuse_existing(key)?;
                match code.as_str() {
                    "InvalidBlockList" => Err(StoreError::Transient(format!("{key}: its blocks are gone"))),
                    _ => Err(error),
                }
            }
            _ => Err(self.failure(key, answer)),
        }
    }

    fn refuse_existing(&self, key: &str) -> Result<(), StoreError> {
        let answer = self.server.send(self.request("HEAD", key, &[], Vec::new(), 0)?, None)?;
        if answer.status().is_success() {
            return Err(StoreError::AlreadyExists(key.to_owned()));
        }
        self.failure(key, answer).unless_not_found()
    }

    fn object(&self, blob: &str) -> Option<Object> {
        let word = self.settings.time_word.as_deref().map(identifier);
        let metadata = blob.split_once("<Metadata>").map_or("", |(_, metadata)| metadata);
        let said = word.and_then(|word| element(metadata, &word));
        let listed = element(blob, "Last-Modified").and_then(|time| jiff::fmt::rfc2822::parse(&time).ok());
        let modified_millis = modified_millis(said.as_deref(), listed.map(|time| time.timestamp()));
        Some(Object {
            key: element(blob, "Name")?,
            size: element(blob, "Content-Length")?.parse().ok()?,
            modified_millis,
        })
    }
}

/// A word as Azure takes it: letters, digits and `_`.
fn identifier(word: &str) -> String {
    word.chars().filter(|character| character.is_ascii_alphanumeric() || *character == '_').collect()
}

/// What the account's key signs. Headers are in order of their names.
fn to_sign(
    method: &str,
    account: &str,
    path: &str,
    parameters: Parameters<'_>,
    headers: &[(String, String)],
    body_bytes: u64,
) -> String {
    let header = |name: &str| {
        let found = headers.iter().find(|(found, _)| found == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let length = if body_bytes == 0 { String::new() } else { body_bytes.to_string() };
    let lines = [
        method,
        header("content-encoding"),
        header("content-language"),
        &length,
        header("content-md5"),
        header("content-type"),
        // The time is in x-ms-date.
        "",
        header("if-modified-since"),
        header("if-match"),
        header("if-none-match"),
        header("if-unmodified-since"),
        header("range"),
    ];
    let own = headers.iter().filter(|(name, _)| name.starts_with("x-ms-"));
    let own: String = own.map(|(name, value)| format!("{name}:{value}\n")).collect();
    let mut parameters = parameters.to_vec();
    parameters.sort_unstable();
    let parameters: String = parameters.iter().map(|(name, value)| format!("\n{name}:{value}")).collect();
    format!("{}\n{own}/{account}{path}{parameters}", lines.join("\n"))
}

impl Store for AzureStore {
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, attributes: &Attributes) -> Result<(), StoreError> {
        check_length(key, body, length)?;
        if length > self.part_bytes {
            return self.create_in_blocks(key, body, length, attributes);
        }
        let mut headers = self.metadata(attributes);
        headers.push(("content-type".into(), "application/octet-stream".into()));
        headers.push(("if-none-match".into(), "*".into()));
        headers.push(("x-ms-blob-type".into(), "BlockBlob".into()));
        let request = self.request("PUT", key, &[], headers, length)?;
        let answer = self.server.send(request, Some((&mut body.take(length), length)))?;
        if answer.status().is_success() { Ok(()) } else { Err(self.failure(key, answer)) }
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        let range = range.as_ref().map(bytes_of);
        let headers = range.map(|range| ("x-ms-range".to_owned(), range)).into_iter().collect();
        let answer = self.server.send(self.request("GET", key, &[], headers, 0)?, None)?;
        if !answer.status().is_success() {
            return Err(self.failure(key, answer));
        }
        Ok(Box::new(self.server.body(answer)))
    }

    fn get_part(&self, key: &str, range: Range<u64>, version: Option<&str>) -> Result<Part, StoreError> {
        let said = bytes_of(&range);
        let mut headers = vec![("x-ms-range".to_owned(), said)];
        if let Some(version) = version {
            headers.push(("if-match".into(), version.to_owned()));
        }
        let answer = self.server.send(self.request("GET", key, &[], headers, 0)?, None)?;
        let Some(object_bytes) = object_bytes_of(key, &range, &answer)? else {
            return Err(self.failure(key, answer));
        };
        let version = answer.headers().get("etag").and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        Ok(Part { body: Box::new(self.server.body(answer)), object_bytes, version })
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        let mut pages = Pages::default();
        let mut marker = String::new();
        loop {
            let mut parameters = vec![("comp", "list"), ("include", "metadata"), ("prefix", prefix)];
            if !marker.is_empty() {
                parameters.push(("marker", &marker));
            }
            parameters.push(("restype", "container"));
            let answer = self.server.send(self.request("GET", "", &parameters, Vec::new(), 0)?, None)?;
            if !answer.status().is_success() {
                return Err(match self.failure("a listing", answer) {
                    StoreError::NotFound(_) => {
                        let container = &self.settings.container;
                        StoreError::Permanent(format!("the store answered 404: there is no container {container}"))
                    }
                    error => error,
                });
            }
            let text = self.server.text(answer, LISTING_BYTES_MAX);
            let text = text.map_err(|error| StoreError::Transient(format!("a listing: {error}")))?;
            let wrong = |what: &str| StoreError::Permanent(format!("the store's listing {what}"));
            // One that was cut off would leave out what is there.
            if !text.contains("<EnumerationResults") || !text.contains("</EnumerationResults>") {
                return Err(wrong("is not one of Azure's"));
            }
            let mut objects = Vec::new();
            for blob in text.split("<Blob>").skip(1) {
                // A name that XML cannot write is nobody's whom we know.
                if blob.trim_start().starts_with("<Name Encoded") {
                    continue;
                }
                objects.push(self.object(blob).ok_or_else(|| wrong("has an object without name or size"))?);
            }
            match pages.take(objects, element(&text, "NextMarker").filter(|next| !next.is_empty()))? {
                Some(next) => marker = next,
                None => break,
            }
        }
        let mut objects = pages.into_objects();
        objects.retain(|object| object.key.starts_with(prefix) && *object.key > *after);
        Ok(objects)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let answer = self.server.send(self.request("DELETE", key, &[], Vec::new(), 0)?, None)?;
        if answer.status().is_success() {
            return Ok(());
        }
        self.failure(key, answer).unless_not_found()
    }
}

#[cfg(test)]
#[path = "azure_tests.rs"]
mod tests;
