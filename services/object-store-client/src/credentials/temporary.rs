//! Keys that somebody lends for a while, and lends anew before they end: AWS's token service for the token of a pod (web identity), the
//! agent beside a container (ECS, EKS Pod Identity), or a machine's metadata service (EC2, version 2).

use super::{Credentials, Provider};
use crate::StoreError;
use crate::encoding::encode;
use crate::http::without_secrets;
use crate::listing::element;
use crate::loan::{Loan, Question, Terms};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TERMS: Terms = Terms {
    some: "keys",
    none: "no keys",
    are_not: "keys on loan are",
    // Who lends is near.
    timeout: Duration::from_secs(5),
    code: |answer| element(answer, "Code"),
    passing: &[429],
};
/// Where a container's agent is, if it is named by a path.
const CONTAINER: &str = "http://169.254.170.2";
/// Where a machine's metadata service is.
const INSTANCE: &str = "http://169.254.169.254";

/// Who lends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lender {
    WebIdentity { endpoint: String, role: String, session: String, token_file: PathBuf },
    Container { url: String, token: Option<String>, token_file: Option<PathBuf> },
    Instance { endpoint: String },
}

/// Keys on loan.
pub struct Temporary {
    lender: Lender,
    loan: Loan<Credentials>,
}

impl Temporary {
    /// From whoever lends by what is set: `AWS_WEB_IDENTITY_TOKEN_FILE` and `AWS_ROLE_ARN` (with `AWS_ROLE_SESSION_NAME`), or
    /// `AWS_CONTAINER_CREDENTIALS_FULL_URI` or `…_RELATIVE_URI` (with `AWS_CONTAINER_AUTHORIZATION_TOKEN` or `…_TOKEN_FILE`); nothing is
    /// asked for yet. `None`: none of them is set.
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: keys would go over a network in the clear, or there are no certificates to trust.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Temporary>, StoreError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let region = set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION")).unwrap_or_else(|| "us-east-1".into());
        let file = |name: &str| set(name).map(PathBuf::from);
        let lender = if let (Some(token_file), Some(role)) = (file("AWS_WEB_IDENTITY_TOKEN_FILE"), set("AWS_ROLE_ARN"))
        {
            let at_aws = || format!("https://sts.{region}.amazonaws.com");
            let endpoint = set("AWS_ENDPOINT_URL_STS").unwrap_or_else(at_aws);
            let session = set("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| format!("process-{}", std::process::id()));
            Lender::WebIdentity { endpoint, role, session, token_file }
        } else {
            let relative = || set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").map(|path| format!("{CONTAINER}{path}"));
            let Some(url) = set("AWS_CONTAINER_CREDENTIALS_FULL_URI").or_else(relative) else { return Ok(None) };
            let token = set("AWS_CONTAINER_AUTHORIZATION_TOKEN");
            Lender::Container { url, token, token_file: file("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") }
        };
        Temporary::of(lender).map(Some)
    }

    /// From the metadata service of the machine, at `AWS_EC2_METADATA_SERVICE_ENDPOINT` or where AWS has it.
    ///
    /// # Errors
    /// As those of [`Temporary::find`].
    pub fn of_instance(variable: impl Fn(&str) -> Option<String>) -> Result<Temporary, StoreError> {
        let set = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").filter(|value| !value.is_empty());
        let endpoint = set.unwrap_or_else(|| INSTANCE.into()).trim_end_matches('/').to_owned();
        Temporary::of(Lender::Instance { endpoint })
    }

    fn of(lender: Lender) -> Result<Temporary, StoreError> {
        let (Lender::WebIdentity { endpoint: url, .. }
        | Lender::Container { url, .. }
        | Lender::Instance { endpoint: url }) = &lender;
        Ok(Temporary { loan: Loan::new(url, false, &TERMS)?, lender })
    }

    fn lend(&self) -> Result<(Credentials, i64), StoreError> {
        match &self.lender {
            Lender::WebIdentity { endpoint, role, session, token_file } => {
                let [role, session, token] = [role, session, &content(token_file)?].map(|text| encode(text, false));
                let form = format!(
                    "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={role}&RoleSessionName={session}&WebIdentityToken={token}"
                );
                let answer = self.ask("POST", &format!("{}/", endpoint.trim_end_matches('/')), &[], &form)?;
                keys(|name| element(&answer, name), "SessionToken")
            }
            Lender::Container { url, token, token_file } => {
                let token = token_file.as_deref().map(content).transpose()?.or_else(|| token.clone());
                let headers: Vec<(&str, &str)> = token.iter().map(|token| ("authorization", token.as_str())).collect();
                keys_of_json(&self.ask("GET", url, &headers, "")?)
            }
            Lender::Instance { endpoint } => {
                let lifetime = [("x-aws-ec2-metadata-token-ttl-seconds", "21600")];
                let token = self.ask("PUT", &format!("{endpoint}/latest/api/token"), &lifetime, "")?;
                let headers = [("x-aws-ec2-metadata-token", token.trim())];
                let place = format!("{endpoint}/latest/meta-data/iam/security-credentials/");
                let roles = self.ask("GET", &place, &headers, "")?;
                let none = || StoreError::Permanent("this machine has no role: its metadata service names none".into());
                let role = roles.lines().next().map(str::trim).filter(|role| !role.is_empty()).ok_or_else(none)?;
                keys_of_json(&self.ask("GET", &format!("{place}{role}"), &headers, "")?)
            }
        }
    }

    fn ask(&self, method: &'static str, url: &str, headers: &[(&str, &str)], form: &str) -> Result<String, StoreError> {
        self.loan.ask(&Question { method, url, place: &without_secrets(url), headers, form })
    }
}

impl Provider for Temporary {
    fn current(&self) -> Result<Credentials, StoreError> {
        self.loan.current(|_| self.lend())
    }
}

fn content(path: &Path) -> Result<String, StoreError> {
    // It is written anew now and then, perhaps just now.
    let text = std::fs::read_to_string(path);
    text.map(|text| text.trim().to_owned())
        .map_err(|error| StoreError::Transient(format!("{}: {error}", path.display())))
}

fn keys(field: impl Fn(&str) -> Option<String>, token: &str) -> Result<(Credentials, i64), StoreError> {
    let get = |name: &str| {
        let missing = || StoreError::Transient(format!("keys on loan come without {name}"));
        field(name).filter(|value| !value.is_empty()).ok_or_else(missing)
    };
    let end = get("Expiration")?;
    let wrong = |error| StoreError::Transient(format!("keys on loan end at {end}: {error}"));
    let end = end.parse::<jiff::Timestamp>().map_err(wrong)?.as_millisecond();
    let (access_key_id, secret_access_key) = (get("AccessKeyId")?, get("SecretAccessKey")?);
    Ok((Credentials { access_key_id, secret_access_key, session_token: Some(get(token)?) }, end))
}

fn keys_of_json(text: &str) -> Result<(Credentials, i64), StoreError> {
    let wrong = |error| StoreError::Transient(format!("keys on loan are not JSON: {error}"));
    let answer: serde_json::Value = serde_json::from_str(text).map_err(wrong)?;
    keys(|name| answer.get(name)?.as_str().map(str::to_owned), "Token")
}

#[cfg(test)]
#[path = "temporary_tests.rs"]
mod tests;
