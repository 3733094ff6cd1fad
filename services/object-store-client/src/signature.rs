//! AWS Signature Version 4, over the headers that S3 asks for. Pure.

use crate::credentials::Credentials;
use ring::{digest, hmac};

/// A request as it is signed.
pub struct Canonical<'a> {
    /// `GET`, `PUT`, …
    pub method: &'a str,
    /// Path, encoded.
    pub path: &'a str,
    /// Query, encoded, parameters in order of their names.
    pub query: &'a str,
    /// Names in lower case, in order, with values without surrounding blanks.
    pub headers: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body, in hexadecimal digits.
    pub payload_hash: &'a str,
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of `bytes` in hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// The value of the `authorization` header. `time` is `YYYYMMDDTHHMMSSZ`.
pub fn authorization(request: &Canonical<'_>, credentials: &Credentials, region: &str, time: &str) -> String {
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let headers: String = request.headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let (method, path, query, hash) = (request.method, request.path, request.query, request.payload_hash);
    let canonical = format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{hash}");
    let date = time.get(..8).unwrap_or(time);
    let scope = format!("{date}/{region}/s3/aws4_request");
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256_hex(canonical.as_bytes()));
    let sign = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let secret = format!("AWS4{}", credentials.secret_access_key);
    let key =
        [region, "s3", "aws4_request"].iter().fold(sign(secret.as_bytes(), date), |key, text| sign(key.as_ref(), text));
    let signature = hex(sign(key.as_ref(), &to_sign).as_ref());
    let id = &credentials.access_key_id;
    format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example "GET Object" of Amazon's page "Signature calculations for the Authorization header".
    #[test]
    fn amazons_own_example() {
        let credentials = Credentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let hash = sha256_hex(b"");
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", hash.as_str()),
            ("x-amz-date", "20130524T000000Z"),
        ];
        let request = Canonical { method: "GET", path: "/test.txt", query: "", headers: &headers, payload_hash: &hash };
        let value = authorization(&request, &credentials, "us-east-1", "20130524T000000Z");
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert!(value.ends_with(&format!("Signature={signature}")), "{value}");
    }
}
