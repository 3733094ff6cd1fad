//! Tokens of any bytes, with a signature that is right and without; and certificates, keys and PEM files of any bytes.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use ring::hmac;
use rusd::jwt::{Jwt, JwtSettings};

const SECRET: &[u8] = b"secret";
const HEAD: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

static JWT: LazyLock<Jwt> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("rusd-fuzz-{}", std::process::id()));
    std::fs::write(&path, SECRET).expect("a place for the secret");
    let (sign_method, ttl) = ("HS256".to_owned(), Duration::from_secs(60));
    let jwt = Jwt::open(&JwtSettings { public_key: None, private_key: Some(path.clone()), sign_method, ttl });
    std::fs::remove_file(path).expect("it was there");
    jwt.expect("it is a secret")
});

fuzz_target!(|data: &[u8]| {
    if let Ok(token) = std::str::from_utf8(data) {
        assert_eq!(JWT.check(token, 0), None, "nobody signed it");
    }
    let mut token = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEAD), URL_SAFE_NO_PAD.encode(data));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), token.as_bytes());
    token.push('.');
    token.push_str(&URL_SAFE_NO_PAD.encode(signature));
    if let Some(claims) = JWT.check(&token, 1_000_000) {
        let again = JWT.make(&claims, 1_000_000).expect("there is a secret");
        assert_eq!(JWT.check(&again, 1_000_000), Some(claims));
    }
    let _ = service_kit::tls::common_name(data);
});
