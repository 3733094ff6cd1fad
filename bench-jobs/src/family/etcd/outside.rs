//! Loading a store that is somebody's: looked at before, cleaned up after. See [`crate::load::outside`].

use http::HeaderValue;
use http::header::HeaderName;
use service_kit::client::Channel;

use crate::failure::Failure;
use crate::family::etcd::space;
use crate::load::Context;
use crate::load::outside::{Guest, Outside};
use crate::net::etcd::messages::{AuthenticateRequest, AuthenticateResponse, DeleteRangeRequest, RangeRequest, path};
use crate::net::etcd::store::Store;
use crate::net::grpc::connect_over;

/// Keys that one request deletes.
const KEYS_AT_ONCE: i64 = 1_000;

/// Connects, over TLS and logged in where a store that is somebody's asks for that.
pub(crate) async fn log_in(endpoint: &str, context: &Context) -> Result<Channel, Failure> {
    let outside = context.outside.as_ref();
    let tls = outside.and_then(|outside| outside.tls.as_ref());
    let mut channel = connect_over(tls, endpoint, context.timeout).await?;
    let Some(credentials) = outside.and_then(|outside| outside.credentials.as_ref()) else { return Ok(channel) };
    let request = AuthenticateRequest { name: credentials.user.clone(), password: credentials.password.clone() };
    let call = channel.call(path::AUTHENTICATE);
    let answer: AuthenticateResponse = (channel.unary(&call, &request).await)
        .map_err(|error| Failure::grpc(format_args!("Authenticate at {endpoint}: {error}"), &error))?;
    let token = HeaderValue::from_str(&answer.token)
        .map_err(|_| Failure::new(format_args!("Authenticate at {endpoint}: the token is no header")))?;
    channel.set_metadata(HeaderName::from_static("token"), token);
    Ok(channel)
}

async fn count(store: &mut Store, key: Vec<u8>, range_end: Vec<u8>) -> Result<u64, Failure> {
    let request = RangeRequest { key, range_end, count_only: true, ..RangeRequest::default() };
    Ok(store.range(&request).await?.count.unsigned_abs())
}

/// What every key of a load begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// It ends in a slash.
    pub first: String,
    /// The first key after all that begin with it: `0` follows `/`.
    pub end: String,
}

impl Prefix {
    /// That of a store of one's own, or one below it for this load alone.
    pub(super) fn of(namespace: Option<&str>) -> Self {
        let inner = namespace.map_or_else(String::new, |namespace| format!("/{namespace}"));
        let name = format!("{}{inner}", crate::load::outside::NAME);
        Self { first: format!("{name}/"), end: format!("{name}0") }
    }
}

impl Guest for Prefix {
    /// Every member has room ([`space`]); the store holds no key, or those of others are consented to; and none is below the prefix, where only
    /// this load writes.
    async fn look(&self, context: &Context, outside: &Outside) -> Result<Option<String>, Failure> {
        let endpoint = &context.endpoints[0];
        let mut store = Store::new(&log_in(endpoint, context).await?, endpoint);
        if !outside.allows_data {
            // From the first key there can be to the last.
            outside.judge(count(&mut store, vec![0], vec![0]).await?, endpoint)?;
        }
        let mut version = None;
        for endpoint in &context.endpoints {
            let of_member = space::look(&mut Store::new(&log_in(endpoint, context).await?, endpoint)).await?;
            version.get_or_insert(of_member);
        }
        match count(&mut store, self.first.clone().into(), self.end.clone().into()).await? {
            0 => Ok(version),
            keys => Err(Failure::new(format_args!(
                "the store at {endpoint} holds {keys} keys below {}, which nobody but this load may write: run it again",
                self.first
            ))),
        }
    }

    fn leaves(&self, context: &Context, _namespace: &str) -> (String, String) {
        let scheme =
            if context.outside.as_ref().is_some_and(|outside| outside.tls.is_some()) { "https" } else { "http" };
        let removal = format!("etcdctl --endpoints {scheme}://{} del --prefix {}", context.endpoints[0], self.first);
        (self.first.clone(), removal)
    }

    async fn clean_up(&self, context: &Context) -> Result<(), Failure> {
        let endpoint = &context.endpoints[0];
        let mut store = Store::new(&log_in(endpoint, context).await?, endpoint);
        loop {
            let (key, range_end) = (self.first.clone().into_bytes(), self.end.clone().into_bytes());
            let page = RangeRequest { key, range_end, limit: KEYS_AT_ONCE, keys_only: true, ..RangeRequest::default() };
            let found = store.range(&page).await?.kvs;
            let Some(last) = found.last() else { return Ok(()) };
            let mut range_end = last.key.to_vec();
            range_end.push(0);
            store.delete(&DeleteRangeRequest { key: self.first.clone().into(), range_end }).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_below_the_prefix_and_holds_nothing_else() {
        let (own, inner) = (Prefix::of(None), Prefix::of(Some("1a2b3c4d")));
        assert_eq!((own.first.as_str(), own.end.as_str()), ("storebench/", "storebench0"));
        assert_eq!(inner.first, "storebench/1a2b3c4d/");
        assert!(own.first < inner.first && inner.end < own.end);
        assert!(inner.first.as_str() <= "storebench/1a2b3c4d/k" && "storebench/1a2b3c4d/k" < inner.end.as_str());
        assert!("storebench/1a2b3c4e/k" > inner.end.as_str());
    }
}
