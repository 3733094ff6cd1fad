//! What an answer of failure means, in one line: the store, the bucket, the key where there is one, the store's own code, and what to do. Pure.
//!
//! An object is not there only where the store says that of an object: a proxy's page, an account or a bucket that is not there are no empty
//! replica.

use crate::StoreError;
use crate::http::{first_words, is_passing, without_secrets};
use crate::listing::element;

/// Who was asked for what.
pub(super) struct Asked<'a> {
    pub endpoint: &'a str,
    pub region: &'a str,
    pub bucket: &'a str,
    /// Empty where the bucket was asked for.
    pub key: &'a str,
}

/// What came of it.
pub(super) struct Failure<'a> {
    pub status: u16,
    /// The region in which the bucket is, where the store says so in its head.
    pub region: Option<&'a str>,
    /// Where else to ask.
    pub location: Option<&'a str>,
    /// What there is of the body.
    pub text: &'a str,
}

impl Asked<'_> {
    /// The answer as an error.
    pub(super) fn failed(&self, failure: &Failure<'_>) -> StoreError {
        let Failure { status, text, .. } = *failure;
        // Whoever answers shall write one line of ours at most.
        let code = first_words(&element(text, "Code").unwrap_or_default());
        match (status, code.as_str()) {
            (404, "NoSuchKey" | "NoSuchUpload" | "NoSuchVersion" | "NotFound") if !self.key.is_empty() => {
                return StoreError::NotFound(self.key.to_owned());
            }
            (404, "") if !self.key.is_empty() && text.trim().is_empty() => {
                return StoreError::NotFound(self.key.to_owned());
            }
            (412, _) => return StoreError::AlreadyExists(self.key.to_owned()),
            _ => {}
        }
        let separator = if code.is_empty() { "" } else { " " };
        let endpoint = without_secrets(self.endpoint);
        let of_key = if self.key.is_empty() { String::new() } else { format!("{} in ", self.key) };
        let remedy = self.remedy(&code, failure);
        let why = format!(
            "the store at {endpoint} answered {status}{separator}{code} for {of_key}bucket {}: {remedy}",
            self.bucket
        );
        // A body that came too slowly; a clock that is set meanwhile.
        let may_pass = is_passing(status) || ["RequestTimeout", "RequestTimeTooSkewed"].contains(&code.as_str());
        if may_pass { StoreError::Transient(why) } else { StoreError::Permanent(why) }
    }

    fn remedy(&self, code: &str, failure: &Failure<'_>) -> String {
        let Failure { status, text, .. } = *failure;
        let elsewhere = element(text, "Region").or_else(|| failure.region.map(str::to_owned));
        let elsewhere = elsewhere.map(|region| first_words(&region));
        let elsewhere = elsewhere.filter(|region| !region.is_empty() && region != self.region);
        let said = match code {
            "NoSuchBucket" => "there is no such bucket: make it there, or correct its name",
            "InvalidBucketName" => "no bucket can have that name: correct it",
            "SignatureDoesNotMatch" => "the secret is not the one of this access key: correct the secret access key",
            "InvalidAccessKeyId" | "XAdminUserNotFound" => "the store does not know this access key: correct its ID",
            "AccessDenied" | "AllAccessDisabled" | "AccountProblem" => {
                "these keys may not do that: let them list the bucket, and get, put and delete its objects"
            }
            "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
                "the session token has ended, or is not of these keys: get new ones"
            }
            "RequestTimeTooSkewed" => "this machine's clock is wrong: set it",
            "RequestTimeout" => "the body came too slowly: see that the network has room for it",
            "SlowDown" | "TooManyRequests" | "ServiceUnavailable" | "InternalError" => {
                "the store has too much to do, or is broken: tried again where that may help"
            }
            "EntityTooLarge" => "it takes no such large object at once: send smaller parts",
            "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity" => "it has no room: make some",
            _ => match elsewhere {
                Some(region) => {
                    return format!("the bucket is in another region: say {region}, and not {}", self.region);
                }
                None if code == "AuthorizationHeaderMalformed" => {
                    return format!("it does not take the region {}: say the one that the bucket is in", self.region);
                }
                None if (300..400).contains(&status) => {
                    let location = element(text, "Endpoint").or_else(|| failure.location.map(without_secrets));
                    let location = location.map_or(String::new(), |location| format!(" ({})", first_words(&location)));
                    return format!(
                        "it is elsewhere{location}: correct endpoint and region, or see what stands between"
                    );
                }
                None if status == 400 && self.endpoint.starts_with("http://") && text.contains("HTTPS") => {
                    "it wants TLS: begin the endpoint with https://"
                }
                None => {
                    let words = element(text, "Message").unwrap_or_else(|| text.to_owned());
                    let words = first_words(&words);
                    return match (code.is_empty(), words.is_empty()) {
                        (false, false) => format!("\"{words}\""),
                        (false, true) => "see what the store means by that".into(),
                        (true, false) => format!(
                            "\"{words}\", which is no answer of S3: correct the endpoint, or see what stands between"
                        ),
                        (true, true) if is_passing(status) => "tried again where that may help".into(),
                        (true, true) => "it does not say why: correct the endpoint, or see what stands between".into(),
                    };
                }
            },
        };
        said.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(endpoint: &str, key: &str, status: u16, text: &str) -> StoreError {
        let asked = Asked { endpoint, region: "us-east-1", bucket: "b", key };
        asked.failed(&Failure { status, region: None, location: None, text })
    }

    fn xml(code: &str, more: &str) -> String {
        format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>Words\nof it.</Message>{more}</Error>")
    }

    #[test]
    fn each_answer_is_one_line_that_names_store_bucket_key_and_code_and_says_what_to_do() {
        let html = "<html><head><title>404</title><style>p{}</style></head><body>\n<h1>Not Found</h1><p>nginx/1.25</p></body></html>";
        for (status, text, is_passing, parts) in [
            (404, xml("NoSuchBucket", ""), false, ["404 NoSuchBucket", "make it there, or correct its name"]),
            (404, xml("XAdminUserNotFound", ""), false, ["404 XAdminUserNotFound", "does not know this access key"]),
            (403, xml("InvalidAccessKeyId", ""), false, ["403 InvalidAccessKeyId", "does not know this access key"]),
            (
                403,
                xml("SignatureDoesNotMatch", ""),
                false,
                ["403 SignatureDoesNotMatch", "correct the secret access key"],
            ),
            (403, xml("AccessDenied", ""), false, ["403 AccessDenied", "let them list the bucket"]),
            (400, xml("ExpiredToken", ""), false, ["400 ExpiredToken", "get new ones"]),
            (
                400,
                xml("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"),
                false,
                ["400 AuthorizationHeaderMalformed", "say eu-west-1, and not us-east-1"],
            ),
            (
                400,
                xml("AuthorizationHeaderMalformed", ""),
                false,
                ["400 AuthorizationHeaderMalformed", "does not take the region us-east-1"],
            ),
            (
                301,
                xml("PermanentRedirect", "<Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint>"),
                false,
                ["301 PermanentRedirect", "elsewhere (b.s3.eu-west-1.amazonaws.com): correct endpoint and region"],
            ),
            (
                403,
                xml("RequestTimeTooSkewed", ""),
                true,
                ["403 RequestTimeTooSkewed", "this machine's clock is wrong: set it"],
            ),
            (400, xml("RequestTimeout", ""), true, ["400 RequestTimeout", "too slowly"]),
            (503, xml("SlowDown", ""), true, ["503 SlowDown", "too much to do"]),
            (400, xml("Unheard", ""), false, ["400 Unheard", "\"Words of it.\""]),
            (
                404,
                html.to_owned(),
                false,
                ["answered 404 for", "\"404 Not Found nginx/1.25\", which is no answer of S3"],
            ),
            (502, html.to_owned(), true, ["answered 502 for", "which is no answer of S3"]),
            (403, String::new(), false, ["answered 403 for", "does not say why"]),
            (
                400,
                xml("A\nforged\rline", "<Region>r\ns</Region>"),
                false,
                ["400 A forged line for", "say r s, and not"],
            ),
        ] {
            for (key, named) in [("p/k", "for p/k in bucket b: "), ("", "for bucket b: ")] {
                let error = said("http://store:9000", key, status, &text);
                let line = error.to_string();
                assert!(line.starts_with("the store at http://store:9000 answered ") && line.contains(named), "{line}");
                assert!(parts.iter().all(|part| line.contains(part)), "{line}");
                assert!(!line.contains('\n') && !line.contains("  ") && line.len() < 300, "{line}");
                assert_eq!(error.is_transient(), is_passing, "{line}");
            }
        }
    }

    #[test]
    fn an_object_is_not_there_only_where_the_store_says_that_of_an_object() {
        for text in [xml("NoSuchKey", ""), xml("NoSuchUpload", ""), String::new()] {
            assert!(matches!(said("http://s", "p/k", 404, &text), StoreError::NotFound(key) if key == "p/k"), "{text}");
            assert!(matches!(said("http://s", "", 404, &text), StoreError::Permanent(_)), "{text}");
        }
    }

    #[test]
    fn plain_words_to_a_server_with_tls_and_a_redirect_say_where_to_ask() {
        let tls = said("http://store:9000", "", 400, "Client sent an HTTP request to an HTTPS server.\n").to_string();
        assert!(tls.contains("begin the endpoint with https://"), "{tls}");
        let asked = Asked { endpoint: "https://s3.us-east-1.amazonaws.com", region: "us-east-1", bucket: "b", key: "" };
        let region = Failure { status: 301, region: Some("eu-west-1"), location: None, text: "" };
        let line = asked.failed(&region).to_string();
        assert!(line.contains("say eu-west-1, and not us-east-1"), "{line}");
        let location = Some("https://user:SECRET@portal.example/login?token=SECRET");
        let line = asked.failed(&Failure { status: 302, region: None, location, text: "" }).to_string();
        assert!(line.contains("elsewhere (https://…@portal.example/login)") && !line.contains("SECRET"), "{line}");
    }
}
