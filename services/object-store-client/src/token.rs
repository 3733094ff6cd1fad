//! Tokens (OAuth 2) that Google and Azure lend for a while, and lend anew before they end: for the key of a service account, for what a user's
//! own login has left on the machine, for a pod's token, for an application's secret, or from the metadata service of a machine.

use crate::StoreError;
use crate::encoding::encode;
use crate::loan::{Loan, Question, Terms};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TERMS: Terms = Terms {
    some: "tokens",
    none: "no token",
    are_not: "a token on loan is",
    // Who lends is near, or large.
    timeout: Duration::from_secs(10),
    code: |answer| {
        let answer: serde_json::Value = serde_json::from_str(answer).ok()?;
        answer.get("error")?.as_str().map(str::to_owned)
    },
    passing: &[408, 429],
};
/// What a token of Google's is for: reading and writing objects.
const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";
/// What a token of Azure's is for.
const AZURE_RESOURCE: &str = "https://storage.azure.com/";
/// Where a machine's metadata service is.
const INSTANCE: &str = "169.254.169.254";

/// Who lends, and what for.
enum Lender {
    /// Who asks signs that it is this account.
    ServiceAccount { url: String, email: String, key_id: String, key: Box<RsaKeyPair> },
    /// A form that stays the same.
    Form { url: String, form: String },
    /// A form with a token that somebody writes anew now and then.
    Federated { url: String, form: String, token_file: PathBuf },
    /// A metadata service, and the header that it wants.
    Instance { url: String, header: (&'static str, String) },
}

/// Tokens on loan.
pub struct Token {
    lender: Lender,
    loan: Loan<String>,
}

fn permanent(text: String) -> StoreError {
    StoreError::Permanent(text)
}

/// The key in a file of PEM; RSA in PKCS #8, as Google writes it, or in PKCS #1.
fn rsa_key(pem: &str) -> Option<RsaKeyPair> {
    match PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()? {
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok(),
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()).ok(),
        _ => None,
    }
}

fn google(path: &Path) -> Result<Lender, StoreError> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| permanent(format!("{name}: {error}")))?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| permanent(format!("{name} is no JSON: {error}")))?;
    let field = |field: &str| {
        let missing = || permanent(format!("{name} has no {field}: it is not a file of Google's credentials"));
        json.get(field).and_then(|value| value.as_str()).map(str::to_owned).ok_or_else(missing)
    };
    match field("type")?.as_str() {
        "service_account" => {
            let no_key = || permanent(format!("{name}: its private_key is no RSA key in PEM: download the file anew"));
            let key = Box::new(rsa_key(&field("private_key")?).ok_or_else(no_key)?);
            let key_id = field("private_key_id").unwrap_or_default();
            Ok(Lender::ServiceAccount { url: field("token_uri")?, email: field("client_email")?, key_id, key })
        }
        "authorized_user" => {
            let url = field("token_uri").unwrap_or_else(|_| "https://oauth2.googleapis.com/token".into());
            let [client, secret, token] = [field("client_id")?, field("client_secret")?, field("refresh_token")?]
                .map(|text| encode(&text, false));
            let form =
                format!("grant_type=refresh_token&client_id={client}&client_secret={secret}&refresh_token={token}");
            Ok(Lender::Form { url, form })
        }
        kind => Err(permanent(format!(
            "{name} is of type {kind}: service_account and authorized_user are known; or run on a machine or in a pod that has the account"
        ))),
    }
}

impl Token {
    /// Google's: by `file`, or the file that `GOOGLE_APPLICATION_CREDENTIALS` names, or that gcloud has left in the home folder, or else from the
    /// metadata service (GCE, GKE, Cloud Run; at `GCE_METADATA_HOST`). Nothing is asked for yet.
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: a file is not what it should be, or a secret would go over a network in the clear.
    pub fn google(file: Option<&Path>, variable: impl Fn(&str) -> Option<String>) -> Result<Token, StoreError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let left = || {
            let own = set("CLOUDSDK_CONFIG").map(PathBuf::from);
            let folder = own.or_else(|| set("HOME").map(|home| Path::new(&home).join(".config/gcloud")))?;
            Some(folder.join("application_default_credentials.json")).filter(|path| path.exists())
        };
        let named = || set("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
        if let Some(path) = file.map(Path::to_owned).or_else(named).or_else(left) {
            return Token::of(google(&path)?);
        }
        let host = set("GCE_METADATA_HOST").unwrap_or_else(|| INSTANCE.into());
        let url = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
        Token::of(Lender::Instance { url, header: ("metadata-flavor", "Google".into()) })
    }

    /// Azure's: for a pod's token (`AZURE_FEDERATED_TOKEN_FILE`) or an application's secret (`AZURE_CLIENT_SECRET`), both with `AZURE_TENANT_ID`
    /// and `AZURE_CLIENT_ID`; from an application's host (`IDENTITY_ENDPOINT`, `IDENTITY_HEADER`), or else from the metadata service of a
    /// machine, for the identity `AZURE_CLIENT_ID` where that is set. Nothing is asked for yet.
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: a secret would go over a network in the clear.
    pub fn azure(variable: impl Fn(&str) -> Option<String>) -> Result<Token, StoreError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let client = set("AZURE_CLIENT_ID");
        if let (Some(tenant), Some(client)) = (set("AZURE_TENANT_ID"), client.as_deref()) {
            let authority = set("AZURE_AUTHORITY_HOST").unwrap_or_else(|| "https://login.microsoftonline.com".into());
            let url = format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'));
            let (client, scope) = (encode(client, false), encode(&format!("{AZURE_RESOURCE}.default"), false));
            let form = format!("grant_type=client_credentials&client_id={client}&scope={scope}");
            if let Some(token_file) = set("AZURE_FEDERATED_TOKEN_FILE").map(PathBuf::from) {
                let kind = encode("urn:ietf:params:oauth:client-assertion-type:jwt-bearer", false);
                let form = format!("{form}&client_assertion_type={kind}&client_assertion=");
                return Token::of(Lender::Federated { url, form, token_file });
            }
            if let Some(secret) = set("AZURE_CLIENT_SECRET") {
                let form = format!("{form}&client_secret={}", encode(&secret, false));
                return Token::of(Lender::Form { url, form });
            }
        }
        let resource = encode(AZURE_RESOURCE, false);
        let client = client.map_or(String::new(), |client| format!("&client_id={}", encode(&client, false)));
        if let (Some(endpoint), Some(header)) = (set("IDENTITY_ENDPOINT"), set("IDENTITY_HEADER")) {
            let url = format!("{endpoint}?api-version=2019-08-01&resource={resource}{client}");
            return Token::of(Lender::Instance { url, header: ("x-identity-header", header) });
        }
        let url = format!(
            "http://{INSTANCE}/metadata/identity/oauth2/token?api-version=2018-02-01&resource={resource}{client}"
        );
        Token::of(Lender::Instance { url, header: ("metadata", "true".into()) })
    }

    fn of(lender: Lender) -> Result<Token, StoreError> {
        let (Lender::ServiceAccount { url, .. }
        | Lender::Form { url, .. }
        | Lender::Federated { url, .. }
        | Lender::Instance { url, .. }) = &lender;
        // A metadata service has no TLS, and serves one machine alone, under whatever name.
        let is_trusted = matches!(lender, Lender::Instance { .. });
        Ok(Token { loan: Loan::new(url, is_trusted, &TERMS)?, lender })
    }

    /// The token of now.
    ///
    /// # Errors
    /// Whoever lends them failed or refused.
    pub fn current(&self) -> Result<String, StoreError> {
        self.loan.current(|now| self.lend(now))
    }

    fn lend(&self, now: i64) -> Result<(String, i64), StoreError> {
        let answer = match &self.lender {
            Lender::ServiceAccount { url, email, key_id, key } => {
                let assertion = assertion(url, email, key_id, key, now / 1000)?;
                let kind = encode("urn:ietf:params:oauth:grant-type:jwt-bearer", false);
                self.ask("POST", url, None, &format!("grant_type={kind}&assertion={assertion}"))?
            }
            Lender::Form { url, form } => self.ask("POST", url, None, form)?,
            Lender::Federated { url, form, token_file } => {
                // It is written anew now and then, perhaps just now.
                let token = std::fs::read_to_string(token_file)
                    .map_err(|error| StoreError::Transient(format!("{}: {error}", token_file.display())))?;
                self.ask("POST", url, None, &format!("{form}{}", encode(token.trim(), false)))?
            }
            Lender::Instance { url, header: (name, value) } => self.ask("GET", url, Some((name, value)), "")?,
        };
        let wrong = |what: &str| StoreError::Transient(format!("a token on loan comes {what}"));
        let answer: serde_json::Value = serde_json::from_str(&answer).map_err(|_| wrong("without JSON"))?;
        let token =
            answer.get("access_token").and_then(|token| token.as_str()).ok_or_else(|| wrong("without itself"))?;
        // Azure's metadata service writes the number as text.
        let seconds = answer.get("expires_in");
        let seconds = seconds.and_then(|seconds| seconds.as_i64().or_else(|| seconds.as_str()?.parse().ok()));
        let seconds = seconds.ok_or_else(|| wrong("without its end"))?;
        Ok((token.to_owned(), now.saturating_add(seconds.saturating_mul(1000))))
    }

    fn ask(
        &self,
        method: &'static str,
        url: &str,
        header: Option<(&str, &str)>,
        form: &str,
    ) -> Result<String, StoreError> {
        let place = url.split('?').next().unwrap_or_default();
        self.loan.ask(&Question { method, url, place, headers: header.as_slice(), form })
    }
}

/// What a service account signs to get a token for an hour.
fn assertion(url: &str, email: &str, key_id: &str, key: &RsaKeyPair, now: i64) -> Result<String, StoreError> {
    let header = serde_json::json!({"alg": "RS256", "typ": "JWT", "kid": key_id});
    let claims = serde_json::json!({"iss": email, "scope": GOOGLE_SCOPE, "aud": url, "iat": now, "exp": now + 3600});
    let [header, claims] = [header, claims].map(|value| URL_SAFE_NO_PAD.encode(value.to_string()));
    let text = format!("{header}.{claims}");
    let mut signature = vec![0; key.public().modulus_len()];
    let random = ring::rand::SystemRandom::new();
    key.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature)
        .map_err(|_| permanent(format!("the key of {email} does not sign")))?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
