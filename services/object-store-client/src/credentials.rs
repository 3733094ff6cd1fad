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
/// As those of [`Temporary::find`]; and `AWS_PROFILE` names a profile whose keys are not in the file: nobody else's are taken for it.
pub fn provider(
    asks_instance: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Arc<dyn Provider>>, StoreError> {
    if let Some(credentials) = Credentials::find(&variable) {
        return Ok(Some(Arc::new(credentials)));
    }
    if let Some(profile) = variable("AWS_PROFILE").filter(|profile| !profile.is_empty()) {
        let path = Credentials::path(&variable).map_or("~/.aws/credentials".into(), |path| path.display().to_string());
        return Err(StoreError::Permanent(format!(
            "AWS_PROFILE: {path} has no aws_access_key_id and aws_secret_access_key of the profile \"{profile}\": write them there, or unset it \
             (profiles by SSO, by role or by a program are not known here)"
        )));
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
            let profile = variable("AWS_PROFILE").filter(|profile| !profile.is_empty());
            let profile = profile.unwrap_or_else(|| "default".into());
            Credentials::from_file(&std::fs::read_to_string(Credentials::path(&variable)?).ok()?, &profile)
        })
    }

    /// Where the file is.
    fn path(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set("AWS_SHARED_CREDENTIALS_FILE").or_else(|| set("HOME").map(|home| home.join(".aws/credentials")))
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

    #[test]
    fn a_profile_without_keys_is_an_error_that_names_it_and_no_keys_of_somebody_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials");
        std::fs::write(
            &file,
            "[default]\naws_access_key_id=A\naws_secret_access_key=SECRET\n[half]\naws_access_key_id=B\n",
        )
        .unwrap();
        let of = |profile: &'static str| {
            let file = file.to_str().unwrap().to_owned();
            provider(false, move |name| match name {
                "AWS_SHARED_CREDENTIALS_FILE" => Some(file.clone()),
                "AWS_PROFILE" => Some(profile.into()),
                "AWS_CONTAINER_CREDENTIALS_FULL_URI" => Some("http://127.0.0.1:1/".into()),
                _ => None,
            })
        };
        for name in ["half", "none"] {
            let error = of(name).map(drop).unwrap_err().to_string();
            assert!(error.starts_with("AWS_PROFILE: ") && error.contains(&format!("\"{name}\"")), "{error}");
            assert!(error.contains(file.to_str().unwrap()) && !error.contains("SECRET"), "{error}");
        }
        let keys = of("").unwrap().unwrap().current().unwrap();
        assert_eq!(keys.access_key_id, "A", "an empty one is none");
    }
}
