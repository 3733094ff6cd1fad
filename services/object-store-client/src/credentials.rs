//! Who we are to S3: from the configuration, the environment, or AWS's credentials file, in this order; or by keys on loan ([`temporary`]).

use self::temporary::Temporary;
use crate::StoreError;
use std::path::PathBuf;
use std::sync::Arc;

pub mod temporary;

/// Who says who we are, for each request anew: keys on loan end.
pub trait Provider: Send + Sync {
    /// The keys of now.
    ///
    /// # Errors
    /// Whoever lends them failed or refused.
    fn current(&self) -> Result<Credentials, StoreError>;
}

impl Provider for Credentials {
    fn current(&self) -> Result<Credentials, StoreError> {
        Ok(self.clone())
    }
}

impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn current(&self) -> Result<Credentials, StoreError> {
        P::current(self)
    }
}

/// Keys of the environment or its file, or on loan from whom the environment names (a pod's or a container's role), or at last, where
/// `asks_instance`, from the machine's metadata service; `None`: there are none.
///
/// # Errors
/// As those of [`Temporary::find`].
pub fn provider(
    asks_instance: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Arc<dyn Provider>>, StoreError> {
    if let Some(credentials) = Credentials::find(&variable) {
        return Ok(Some(Arc::new(credentials)));
    }
    if let Some(temporary) = Temporary::find(&variable)? {
        return Ok(Some(Arc::new(temporary)));
    }
    Ok(if asks_instance { Some(Arc::new(Temporary::of_instance(variable)?)) } else { None })
}

/// A pair of keys, and a token where they are temporary.
#[derive(Clone)]
pub struct Credentials {
    /// Public.
    pub access_key_id: String,
    /// Secret.
    pub secret_access_key: String,
    /// For temporary keys.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Credentials({})", self.access_key_id)
    }
}

impl Credentials {
    /// From `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Credentials> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        Some(Credentials {
            access_key_id: variable("AWS_ACCESS_KEY_ID")?,
            secret_access_key: variable("AWS_SECRET_ACCESS_KEY")?,
            session_token: variable("AWS_SESSION_TOKEN"),
        })
    }

    /// From a profile of a credentials file.
    pub fn from_file(text: &str, profile: &str) -> Option<Credentials> {
        let mut here = false;
        let (mut id, mut secret, mut token) = (None, None, None);
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                here = name.trim() == profile;
            } else if let Some((key, value)) = line.split_once('=').filter(|_| here) {
                let value = Some(value.trim().to_owned());
                match key.trim() {
                    "aws_access_key_id" => id = value,
                    "aws_secret_access_key" => secret = value,
                    "aws_session_token" => token = value,
                    _ => {}
                }
            }
        }
        Some(Credentials { access_key_id: id?, secret_access_key: secret?, session_token: token })
    }

    /// The environment, then the file that it names (`AWS_SHARED_CREDENTIALS_FILE`, `AWS_PROFILE`) or `~/.aws/credentials`.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Credentials> {
        Credentials::from_environment(&variable).or_else(|| {
            let home = || variable("HOME").map(|home| PathBuf::from(home).join(".aws/credentials"));
            let path = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from).or_else(home)?;
            let profile = variable("AWS_PROFILE").unwrap_or_else(|| "default".into());
            Credentials::from_file(&std::fs::read_to_string(path).ok()?, &profile)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read_and_others_are_not() {
        let text = "[default]\naws_access_key_id = A\naws_secret_access_key = B\n[other]\naws_access_key_id=C\n\
                    aws_secret_access_key=D==\naws_session_token=E\n";
        let other = Credentials::from_file(text, "other").unwrap();
        let fields = (other.access_key_id.as_str(), other.secret_access_key.as_str(), other.session_token.as_deref());
        assert_eq!(fields, ("C", "D==", Some("E")));
        assert!(Credentials::from_file(text, "third").is_none());
    }
}
