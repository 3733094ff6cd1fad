use std::process::Command;

use proptest::prelude::*;

use super::*;

fn claims() -> Claims {
    Claims { user: "ann".into(), auth_revision: 7 }
}

fn settings(sign_method: &str, public: Option<&Path>, private: Option<&Path>) -> JwtSettings {
    let own = |path: Option<&Path>| path.map(Path::to_path_buf);
    JwtSettings {
        public_key: own(public),
        private_key: own(private),
        sign_method: sign_method.into(),
        ttl: Duration::from_secs(10),
    }
}

/// Keys as openssl makes them, private and public.
fn keys(directory: &Path, arguments: &[&str]) -> (PathBuf, PathBuf) {
    let (private, public) = (directory.join("private"), directory.join("public"));
    let run = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&[arguments, &["-out", private.to_str().unwrap()]].concat());
    run(&["pkey", "-in", private.to_str().unwrap(), "-pubout", "-out", public.to_str().unwrap()]);
    (private, public)
}

fn check_with_keys(methods: &[&str], arguments: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let (private, public) = keys(directory.path(), arguments);
    for method in methods {
        let both = Jwt::open(&settings(method, Some(&public), Some(&private))).unwrap();
        let token = both.make(&claims(), 1_000_000).unwrap();
        let reader = Jwt::open(&settings(method, Some(&public), None)).unwrap();
        assert_eq!(reader.make(&claims(), 0), None);
        for jwt in [&both, &reader] {
            assert_eq!(jwt.check(&token, 1_009_999), Some(claims()), "{method}");
            assert_eq!(jwt.check(&token, 1_010_000), None, "{method}: its time has come");
        }
        let (head, rest) = token.split_once('.').unwrap();
        let (_, signature) = rest.split_once('.').unwrap();
        let body = URL_SAFE_NO_PAD.encode(r#"{"username":"root","revision":7}"#);
        assert_eq!(reader.check(&format!("{head}.{body}.{signature}"), 0), None, "{method}: another user");
        // Nobody chooses how its own token is checked.
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        assert_eq!(reader.check(&format!("{none}.{body}."), 0), None);
    }
}

#[test]
fn tokens_of_every_method_name_their_user_until_their_time_comes() {
    let rsa = ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
    check_with_keys(&["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"], &rsa);
    let ec = |curve| ["genpkey", "-algorithm", "EC", "-pkeyopt", curve];
    check_with_keys(&["ES256"], &ec("ec_paramgen_curve:P-256"));
    check_with_keys(&["ES384"], &ec("ec_paramgen_curve:P-384"));
    check_with_keys(&["EdDSA"], &["genpkey", "-algorithm", "ED25519"]);
    check_with_keys(&["ES256"], &["ecparam", "-name", "prime256v1", "-genkey", "-noout"]);
}

#[test]
fn a_secret_signs_and_checks() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "of both").unwrap();
    for method in ["HS256", "HS384", "HS512"] {
        let jwt = Jwt::open(&settings(method, None, Some(&secret))).unwrap();
        let token = jwt.make(&claims(), 0).unwrap();
        assert_eq!(jwt.check(&token, 0), Some(claims()));
        let other = directory.path().join("other");
        std::fs::write(&other, "of nobody").unwrap();
        assert_eq!(Jwt::open(&settings(method, None, Some(&other))).unwrap().check(&token, 0), None);
    }
}

/// The example of RFC 7515, A.1: a token that somebody else made, without our claims.
#[test]
fn a_token_without_a_user_is_nobodys() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    std::fs::write(&secret, URL_SAFE_NO_PAD.decode(key).unwrap()).unwrap();
    let jwt = Jwt::open(&settings("HS256", None, Some(&secret))).unwrap();
    let signed = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
                  eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature = URL_SAFE_NO_PAD.decode("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk").unwrap();
    assert!(jwt.public.verify(signed.as_bytes(), &signature));
    assert_eq!(jwt.check(&format!("{signed}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"), 0), None);
}

#[test]
fn mistakes_name_the_flag() {
    let said = |settings: &JwtSettings| Jwt::open(settings).unwrap_err().to_string();
    assert!(said(&settings("ES512", None, None)).contains("--auth-token: sign-method ES512 is not supported"));
    assert!(said(&settings("", None, None)).contains("--auth-token: expected sign-method"));
    assert!(said(&settings("RS256", None, None)).contains("jwt needs pub-key"));
    assert!(said(&settings("HS256", None, None)).contains("needs priv-key"));
    let directory = tempfile::tempdir().unwrap();
    let (private, _) = keys(directory.path(), &["genpkey", "-algorithm", "ED25519"]);
    assert!(said(&settings("RS256", None, Some(&private))).contains("cannot be used with this sign-method"));
    assert!(said(&settings("RS256", Some(Path::new("/nowhere")), None)).contains("/nowhere"));
}

proptest! {
    #[test]
    fn any_text_is_a_token_or_none(token in ".{0,60}", parts in proptest::collection::vec("[A-Za-z0-9_-]{0,20}", 3)) {
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "s").unwrap();
        let jwt = Jwt::open(&settings("HS256", None, Some(&secret))).unwrap();
        prop_assert_eq!(jwt.check(&token, 0), None);
        prop_assert_eq!(jwt.check(&parts.join("."), 0), None);
    }
}
