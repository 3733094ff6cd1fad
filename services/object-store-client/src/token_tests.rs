//! Lenders on this machine, which note what they are asked.

use super::*;
use crate::noting::{Seen, answering};
use std::collections::HashMap;

/// Of nobody: made for this test, in PKCS #8 without its frame.
const KEY: &str = "MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQDUH4McPw/PEcuQcnFgp7mvcnRS/6KIc7E/7815aEJ1PBrTFJltM4EVGG+vz5YXYyXaDatT\
     5Y4yJLJ/q5qjIC7d/2RMIjeECeFjZGRXJI9vkhVanyX1IcsGGBbSQDsJ/NljR6aW+YbuEVw/iti39cEsF5FQlebGE0AoZZpv5ZFm9DPOZTKimULddy5rDIJk\
     cikzSflRGwkfFhA8ZNQ0c4Y0FumQqlCgBOZpmw9LS3rLwQN7vMOLRCfY5MbPakN+7sQVa5Rz6vih6kB7aq0DQFb4n+3hNBcoujVI/B8kyFPkAaDMK2rRt3kb\
     CDc7jAJWBUA2S6WvOvqNUpeP8VFOd7XpAgMBAAECggEAJ2Rkujmhy3AAECaYlH0BWCoWnRU5D0MA3yE+1LV+ZfwP9TQFnAhtB8hecVVJB7XTYS+Zqf5ezkQP\
     W/M3x+Rhn7teWl8eVShqkUUi9yXkdzE3Qvl8GI46gDq3/jqMXDn2+t9i+fWDz7EsouY7gcojIfeMdl0oGo+XogjgSbhlrKsFXv+BSY0DLqsPdGgAvD/8bpQR\
     8PE9xELq9tIV8bTVMt1O+A1+su5d1gxbWKoh9TO1TXHwzAUdGskfvx42A1fNBQItWt1PS4yTCi9bYh4avxIDihxKPic5WU3JGVMokix8/XMYf8AEy1JAOGp6\
     H6adPjo255mCGb60CJj5xW5K6QKBgQDwE23ngiRx6O1T4a3VQ1xlW+Rp3wzvcAk+hW8duJOHrcuZiVIMksokO5kLZnfWhRl5mGzOwNlBlNd6LpVRpMnMR5xk\
     PjsczHj12GoNQeXL5TeQ5N16oM5hALD9PNOQ3Vbu0H/5dYR0fOArUDVpd5GUXSUJWLiaEplRhYbh1l69/QKBgQDiMW9KAsKF7pdVjAAB92k8iStjnAPXdOrd\
     ZPIEBXSi5PBKGZJpCtc6cjKTU9N4ic2x7zESkNkeEogxSfMocioXv7Dpfa85bfoLl0nVRHuaDyc6SWbVBSvxNvgBmvbriAxtr3smFL6s6v6Q0nNJjkjTiHlY\
     1OryDbosFp2VYA3FXQKBgQCNF54b1Qx+NZplFdkH4RLILv1Ki2AayAlmyRzIptVtg+KIVX/3C73pFW2YmZwMYyTZpY8s44HLXSJWGFKBLQu8Fsn+z+QFxNXC\
     BnItYHEhJ5FEgnz3uNIRiEp8Sec82BhjOf48KaiynUFRs03wsejI/QTrPU0gn5Wjp4nh6A6+MQJ/P52nrykXjJON/IFjfyoWbvAlQ96dNfusEphReNAP/cBl\
     1HFcvC5QWh/EGat5zmzzbRfYtWAHsG2F4FbsDHQPYp6HIyQ2I/DKYngqS9D28l1QqxP51++cbDsJhWoQCC47UJ4KBKvQ9NEix5ho1EcwNE4t0s4PRgSWV9AE\
     gf6B4QKBgQCWCpZg9g/1mZlz6UUA9KYL56/ayAo9CVfHN00wVYp2BfBALmk4CDEYsmW8XXnyd7XQzEdCDvsQZ58Ud9QimG33QB0EnUN3cmehFNO+p/biLBqn\
     uydhVywGxgvnMm4yETSKScGkuj0fybcbhd92Ctli7UAJg7judyYCsaFhO3xJrQ==";

const LENT: &str = r#"{"access_token": "T{n}", "expires_in": 3599, "token_type": "Bearer"}"#;
const ENDING: &str = r#"{"access_token": "T{n}", "expires_in": "200"}"#;

fn lender(status: &'static str, body: &'static str) -> (String, Seen) {
    answering(move |_, number| format!("HTTP/1.1 {status}\r\n\r\n{}", body.replace("{n}", &number.to_string())))
}

fn azure(variables: &[(&str, &str)]) -> Result<Token, StoreError> {
    let variables: HashMap<&str, &str> = variables.iter().copied().collect();
    Token::azure(|name| variables.get(name).map(|value| (*value).to_owned()))
}

/// What Google's tool writes, in a file of a folder.
fn google_of(json: &serde_json::Value) -> Result<Token, StoreError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.json");
    std::fs::write(&path, json.to_string()).unwrap();
    Token::google(Some(&path), |_| None)
}

#[test]
fn a_service_account_signs_who_it_is_and_its_token_is_held() {
    let (endpoint, seen) = lender("200 OK", LENT);
    let frame = "PRIVATE KEY-----";
    let lines: Vec<&str> = KEY.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let pem = format!("-----BEGIN {frame}\n{}\n-----END {frame}\n", lines.join("\n"));
    let url = format!("{endpoint}/token");
    let mut json = serde_json::json!({"type": "service_account", "client_email": "me@x", "private_key_id": "7",
        "private_key": pem, "token_uri": url});
    let token = google_of(&json).unwrap();
    assert_eq!([token.current().unwrap(), token.current().unwrap()], ["T1", "T1"], "it is not lent twice");
    let request = seen.lock().unwrap()[0].clone();
    assert!(
        request.starts_with("POST /token ") && request.contains("grant_type=urn%3Aietf%3Aparams%3Aoauth%3A"),
        "{request}"
    );
    let (_, assertion) = request.split_once("assertion=").unwrap();
    let parts: Vec<&str> = assertion.split('.').collect();
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&decoded(parts[1])).unwrap();
    assert_eq!((claims["iss"].as_str(), claims["aud"].as_str()), (Some("me@x"), Some(url.as_str())));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
    let key = rsa_key(&pem).unwrap();
    let public = ring::signature::UnparsedPublicKey::new(&ring::signature::RSA_PKCS1_2048_8192_SHA256, key.public());
    let (text, signature) = assertion.rsplit_once('.').unwrap();
    public.verify(text.as_bytes(), &decoded(signature)).unwrap();
    json["private_key"] = "none".into();
    assert!(google_of(&json).err().unwrap().to_string().contains("no RSA key"));
    json["type"] = "external_account".into();
    assert!(google_of(&json).err().unwrap().to_string().contains("is of type external_account"));
}

#[test]
fn a_token_that_ends_soon_is_lent_anew_and_one_that_is_good_outlives_its_lender() {
    let (endpoint, seen) = lender("200 OK", ENDING);
    let json = serde_json::json!({"type": "authorized_user", "client_id": "c", "client_secret": "s&", "refresh_token": "r",
        "token_uri": endpoint});
    let token = google_of(&json).unwrap();
    assert_eq!([token.current().unwrap(), token.current().unwrap()], ["T1", "T2"]);
    assert!(seen.lock().unwrap()[0].ends_with("client_id=c&client_secret=s%26&refresh_token=r"));
    let (refusing, _) = lender("400 Bad Request", r#"{"error": "invalid_grant"}"#);
    let gone = Token { lender: Lender::Form { url: refusing, form: "f".into() }, ..token };
    assert_eq!(gone.current().unwrap(), "T2", "it is good until it ends");
    *gone.loan.held.lock().unwrap() = None;
    let error = gone.current().unwrap_err();
    assert!(!error.is_transient() && error.to_string().ends_with("it answered 400 invalid_grant"), "{error}");
}

#[test]
fn azure_lends_for_a_pods_token_an_applications_secret_and_a_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "pod's\n").unwrap();
    let (endpoint, seen) = lender("200 OK", LENT);
    let who = [("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_ID", "c"), ("AZURE_AUTHORITY_HOST", endpoint.as_str())];
    let of = |more: (&'static str, String)| {
        let variables: Vec<_> = who.iter().copied().chain([(more.0, more.1.as_str())]).collect();
        azure(&variables).unwrap().current().unwrap()
    };
    of(("AZURE_FEDERATED_TOKEN_FILE", path.to_str().unwrap().to_owned()));
    of(("AZURE_CLIENT_SECRET", "s&".to_owned()));
    azure(&[("IDENTITY_ENDPOINT", &endpoint), ("IDENTITY_HEADER", "h")]).unwrap().current().unwrap();
    let seen = seen.lock().unwrap();
    assert!(
        seen[0].starts_with("POST /t/oauth2/v2.0/token ") && seen[0].ends_with("client_assertion=pod%27s"),
        "{}",
        seen[0]
    );
    assert!(seen[1].contains("scope=https%3A%2F%2Fstorage.azure.com%2F.default&client_secret=s%26"), "{}", seen[1]);
    assert!(seen[2].starts_with("GET /?api-version=2019-08-01&resource=") && seen[2].contains("x-identity-header: h"));
    let error = azure(&[who[0], who[1], ("AZURE_AUTHORITY_HOST", "http://elsewhere"), ("AZURE_CLIENT_SECRET", "s")]);
    assert!(error.err().unwrap().to_string().contains("must begin with https://"));
}
