//! The operator's own key, with which it signs what it measured: a ConfigMap that anybody may write becomes a trial only by this
//! signature. The key is in a Secret of the operator's own namespace, made once; its public half is in the status of every run, which
//! nobody but the operator has reason to write, so that `storebench report` can tell, too.

use std::collections::BTreeMap;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256};
use storebench_core::archive::{SIGNATURE_ANNOTATION, digest, is_signed, signed, signed_digest};
use storebench_crds::status::SealedTrials;

/// The Secret's name.
pub const NAME: &str = "storebench-operator-signing-key";
const KEY: &str = "key.pkcs8";

/// Signs, and tells whether it has.
#[derive(Debug)]
pub struct Signer(Ed25519KeyPair);

impl Signer {
    /// The key in this namespace, a new one if there is none.
    pub async fn load(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let api = Api::<Secret>::namespaced(client.clone(), namespace);
        let what = || format!("the operator's key, Secret/{NAME} in namespace {namespace}");
        if api.get_opt(NAME).await.with_context(what)?.is_none() {
            match api.create(&PostParams::default(), &secret()?).await {
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
                result => drop(result.with_context(what)?),
            }
        }
        let secret = api.get(NAME).await.with_context(what)?;
        let key = secret.data.as_ref().and_then(|data| data.get(KEY)).map(|key| key.0.as_slice()).unwrap_or_default();
        let pair = Ed25519KeyPair::from_pkcs8(key);
        pair.map(Self).map_err(|error| anyhow::anyhow!("{} holds no key: {error}: delete it for a new one", what()))
    }

    /// The public half, Base64.
    pub fn public_key(&self) -> String {
        STANDARD.encode(self.0.public_key())
    }

    /// Signs the data of a run's ConfigMap.
    pub fn sign(&self, run_uid: &str, map: &mut ConfigMap) {
        let signature = STANDARD.encode(self.0.sign(&bytes(run_uid, map)));
        map.annotations_mut().insert(SIGNATURE_ANNOTATION.into(), signature);
    }

    /// Signs the list of a complete run's trials, given the hashes of their ConfigMaps by name.
    pub fn seal(&self, run_uid: &str, hashes: &BTreeMap<String, String>) -> SealedTrials {
        let digest = digest(hashes);
        let signature = STANDARD.encode(self.0.sign(&signed_digest(run_uid, &digest)));
        SealedTrials { count: hashes.len() as u32, digest, signature }
    }

    /// What whoever is to strike the store of a trial shows to its meters, 64 hexadecimal digits: the same whenever it is asked for, for this
    /// trial and no other, and known to nobody who has neither the key nor been told.
    pub fn strike_token(&self, run_uid: &str, trial: &str) -> String {
        self.derived("storebench strike 1", &[run_uid, trial]).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// With what the record of a run tells whether a Secret was changed. Whoever reads that record has not this key, and so can try no password
    /// with it; another run has another, so that its Secrets are not seen to be the same.
    pub fn secrets_key(&self, run_uid: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.derived("storebench secrets 1", &[run_uid]))
    }

    /// What nobody can know who has not the operator's key: the same whenever it is asked for, whichever operator asks.
    fn derived(&self, purpose: &str, parts: &[&str]) -> [u8; 32] {
        // Not what is signed of a record: that begins otherwise, and its signatures are there for everybody to read.
        let mut bytes = purpose.as_bytes().to_vec();
        for part in parts {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend(part.as_bytes());
        }
        Sha256::digest(self.0.sign(&bytes)).into()
    }

    /// Whether this key signed the data of a run's ConfigMap.
    pub fn has_signed(&self, run_uid: &str, map: &ConfigMap) -> bool {
        let signature = map.annotations().get(SIGNATURE_ANNOTATION);
        signature.is_some_and(|signature| is_signed(&self.public_key(), &bytes(run_uid, map), signature))
    }
}

fn bytes(run_uid: &str, map: &ConfigMap) -> Vec<u8> {
    signed(run_uid, &map.name_any(), map.data.as_ref().unwrap_or(&BTreeMap::new()))
}

fn secret() -> anyhow::Result<Secret> {
    let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
    let key = key.map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    Ok(Secret {
        metadata: ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() },
        data: Some([(KEY.to_owned(), ByteString(key.as_ref().to_vec()))].into()),
        immutable: Some(true),
        ..Secret::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> Signer {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Signer(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    #[test]
    fn a_trial_has_the_same_token_whenever_it_is_asked_for_and_no_other_has_it() {
        let (one, other) = (signer(), signer());
        let token = one.strike_token("uid", "run-0-a");
        assert_eq!(token, one.strike_token("uid", "run-0-a"), "an operator that takes over gives the same");
        assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
        let others = [
            one.strike_token("uid", "run-1-a"),
            one.strike_token("ui", "drun-0-a"),
            other.strike_token("uid", "run-0-a"),
        ];
        assert!(!others.contains(&token));
    }

    #[test]
    fn a_run_knows_its_secrets_again_by_a_key_that_no_other_run_and_no_other_operator_has() {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let load = || Signer(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap());
        let code = |signer: &Signer, uid: &str| hmac::sign(&signer.secrets_key(uid), b"hunter2").as_ref().to_vec();
        let one = code(&load(), "uid");
        assert_eq!(one, code(&load(), "uid"), "an operator that takes over");
        assert!(![code(&load(), "another"), code(&signer(), "uid")].contains(&one));
    }
}
