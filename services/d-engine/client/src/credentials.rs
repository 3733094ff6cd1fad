//! Who a client is to members that ask for users.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

/// The name and the password of a user. Without TLS, everybody on the way can read them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: String,
}

impl Credentials {
    /// As HTTP has it.
    pub(crate) fn header(&self) -> HeaderValue {
        let encoded = STANDARD.encode(format!("{}:{}", self.name, self.password));
        // Base64 is what a header may have.
        let mut header = HeaderValue::from_str(&format!("Basic {encoded}")).unwrap_or(HeaderValue::from_static(""));
        header.set_sensitive(true);
        header
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}
