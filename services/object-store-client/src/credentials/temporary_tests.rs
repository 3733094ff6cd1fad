//! Lenders on this machine, which note what they are asked.

use super::*;
use crate::noting::{Seen, answering};
use std::collections::HashMap;

/// A server that answers the first line of a request as told, with `{n}` for the number of the request; everything else is 404.
fn lender(answers: &'static [(&'static str, &'static str)]) -> (String, Seen) {
    answering(|request, number| {
        let answer = answers.iter().find(|(line, _)| request.starts_with(line)).map(|(_, answer)| *answer);
        let (status, body) = answer.map_or(("404 Not Found", ""), |body| ("200 OK", body));
        format!("HTTP/1.1 {status}\r\n\r\n{}", body.replace("{n}", &number.to_string()))
    })
}

fn found(variables: &[(&str, &str)]) -> Result<Option<Temporary>, StoreError> {
    let variables: HashMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Temporary::find(|name| variables.get(name).cloned())
}

fn fields(credentials: &Credentials) -> [&str; 3] {
    let token = credentials.session_token.as_deref().unwrap_or_default();
    [&credentials.access_key_id, &credentials.secret_access_key, token]
}

const XML: &str = "<AssumeRoleWithWebIdentityResponse><Credentials><AccessKeyId>A{n}</AccessKeyId>\
    <SecretAccessKey>S</SecretAccessKey><SessionToken>T+/=</SessionToken>\
    <Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResponse>";
const JSON: &str = r#"{"Code": "Success", "AccessKeyId": "A{n}", "SecretAccessKey": "S\/", "Token": "T",
    "Expiration": "2100-01-01T00:00:00Z"}"#;
const ENDS_NOW: &str =
    r#"{"AccessKeyId": "A{n}", "SecretAccessKey": "S", "Token": "T", "Expiration": "2020-01-01T00:00:00Z"}"#;

#[test]
fn the_token_of_a_pod_is_exchanged_once_for_keys() {
    let (endpoint, seen) = lender(&[("POST / ", XML)]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a.b+c\n").unwrap();
    let temporary = found(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x"),
        ("AWS_ROLE_SESSION_NAME", "s"),
        ("AWS_ENDPOINT_URL_STS", endpoint.as_str()),
    ]);
    let temporary = temporary.unwrap().unwrap();
    for _ in 0..2 {
        assert_eq!(fields(&temporary.current().unwrap()), ["A1", "S", "T+/="]);
    }
    let requests = seen.lock().unwrap();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].ends_with(
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx&RoleSessionName=s\
         &WebIdentityToken=a.b%2Bc"
    ));
}

#[test]
fn a_containers_agent_is_asked_with_its_token() {
    let (endpoint, seen) = lender(&[("GET /keys?x=1 ", JSON)]);
    let url = format!("{endpoint}/keys?x=1");
    let set = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()), ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "secret")];
    let temporary = found(&set).unwrap().unwrap();
    assert_eq!(fields(&temporary.current().unwrap()), ["A1", "S/", "T"]);
    assert!(seen.lock().unwrap()[0].to_ascii_lowercase().contains("authorization: secret\r\n"));
}

#[test]
fn a_machines_metadata_service_wants_a_token_first() {
    const ROLE: &str = "/latest/meta-data/iam/security-credentials/";
    const ANSWERS: &[(&str, &str)] = &[
        ("PUT /latest/api/token ", "tok\n"),
        ("GET /latest/meta-data/iam/security-credentials/ ", "role\n"),
        ("GET /latest/meta-data/iam/security-credentials/role ", JSON),
    ];
    let (endpoint, seen) = lender(ANSWERS);
    let temporary = Temporary::of_instance(|_| Some(endpoint.clone())).unwrap();
    assert_eq!(fields(&temporary.current().unwrap()), ["A3", "S/", "T"]);
    let requests = seen.lock().unwrap();
    assert!(
        requests[0].to_ascii_lowercase().contains("x-aws-ec2-metadata-token-ttl-seconds: 21600"),
        "{}",
        requests[0]
    );
    assert!(
        requests[2].contains(ROLE) && requests[2].to_ascii_lowercase().contains("x-aws-ec2-metadata-token: tok\r\n")
    );
}

#[test]
fn keys_that_end_are_lent_anew() {
    let (endpoint, seen) = lender(&[("GET /k ", ENDS_NOW)]);
    let at = |endpoint: &str| found(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", endpoint)]).unwrap().unwrap();
    let temporary = at(&format!("{endpoint}/k"));
    assert_eq!(fields(&temporary.current().unwrap())[0], "A1");
    assert_eq!(fields(&temporary.current().unwrap())[0], "A2");
    assert_eq!(seen.lock().unwrap().len(), 2);
    // Keys that last a minute are lent anew, too, but serve where that fails.
    let soon = jiff::Timestamp::now().as_millisecond() + 60_000;
    let (endpoint, _) = lender(&[]);
    let temporary = at(&format!("{endpoint}/k"));
    let error = temporary.current().unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("lends no keys: it answered 404"), "{error}");
    let credentials = Credentials { access_key_id: "A".into(), secret_access_key: "S".into(), session_token: None };
    *temporary.loan.held.lock().unwrap() = Some((credentials, soon));
    assert_eq!(fields(&temporary.current().unwrap())[0], "A");
}

#[test]
fn keys_do_not_go_over_a_network_in_the_clear() {
    for (url, is_near) in [
        ("http://127.0.0.1:80/x", true),
        ("http://[::1]:80/x", true),
        ("http://localhost/x", true),
        ("http://169.254.170.23/v1/credentials", true),
        ("http://[fd00:ec2::23]/v1/credentials", true),
        ("http://example.com/x", false),
        ("http://127.0.0.1.example.com/x", false),
        ("http://10.0.0.1:8080/x", false),
        ("ftp://127.0.0.1/x", false),
    ] {
        let result = found(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)]);
        assert_eq!(result.is_ok(), is_near, "{url}");
    }
    assert!(found(&[("AWS_ROLE_ARN", "x")]).unwrap().is_none(), "nobody lends");
}
