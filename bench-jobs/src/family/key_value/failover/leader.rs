//! Which member leads: asked of the members, whatever they speak.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use prost::Message;
use tokio::net::lookup_host;
use tokio::time::{sleep, timeout_at};

use super::super::store::{Connection, Spoken};
use crate::failure::Failure;

/// How long a group that was loaded may have no leader before it is to lose it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before all are asked again.
const PAUSE: Duration = Duration::from_millis(20);

const ETCD_STATUS: &str = "/etcdserverpb.Maintenance/Status";
const D_ENGINE_LEADER: &str = "/d_engine.server.cluster.ClusterManagementService/DiscoverLeader";

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

/// `etcdserverpb.StatusResponse`; the request is empty.
#[derive(Clone, PartialEq, Eq, Message)]
struct EtcdStatus {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Nothing {}

/// `d_engine.server.cluster.LeaderDiscoveryRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
struct LeaderRequest {
    #[prost(string, tag = "2")]
    requester_address: String,
}

/// `d_engine.server.cluster.LeaderDiscoveryResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
struct LeaderResponse {
    #[prost(string, tag = "2")]
    leader_address: String,
}

/// The endpoint of the member that leads.
pub(super) async fn find(spoken: Spoken, endpoints: &[String], timeout: Duration) -> Result<String, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for endpoint in endpoints {
            if let Ok(Some(leader)) = ask(spoken, endpoint, timeout).await
                && let Some(leader) = of(&leader, endpoints, deadline).await
            {
                return Ok(leader);
            }
        }
        if Instant::now() > deadline {
            return Err(Failure::new(format_args!("no member says which of {} leads", endpoints.join(", "))));
        }
        sleep(PAUSE).await;
    }
}

/// Which endpoint an address is. In a cluster members know one another by names, and the load knows where they are.
async fn of(address: &str, endpoints: &[String], deadline: Instant) -> Option<String> {
    if endpoints.iter().any(|endpoint| endpoint == address) {
        return Some(address.to_owned());
    }
    let found: Vec<SocketAddr> = timeout_at(deadline.into(), lookup_host(address)).await.ok()?.ok()?.collect();
    let is_found = |endpoint: &&String| endpoint.parse().is_ok_and(|at: SocketAddr| found.contains(&at));
    endpoints.iter().find(is_found).cloned()
}

/// Who leads, as far as a member can say.
async fn ask(spoken: Spoken, endpoint: &str, timeout: Duration) -> Result<Option<String>, Failure> {
    let mut channel = Connection::open_once(spoken, endpoint, timeout).await?.channel();
    match spoken {
        Spoken::Etcd => {
            let call = channel.call(ETCD_STATUS);
            let status: EtcdStatus = channel.unary(&call, &Nothing {}).await.map_err(Failure::new)?;
            let leads = status.leader != 0 && status.header.is_some_and(|header| header.member_id == status.leader);
            Ok(leads.then(|| endpoint.to_owned()))
        }
        Spoken::DEngine(_) => {
            let call = channel.call(D_ENGINE_LEADER);
            let request = LeaderRequest { requester_address: "storebench".into() };
            let found: LeaderResponse = channel.unary(&call, &request).await.map_err(Failure::new)?;
            Ok(Some(found.leader_address))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_leader_is_known_by_its_address_or_by_a_name_of_it() {
        let endpoints = ["127.0.0.1:7001", "127.0.0.1:7002"].map(str::to_owned);
        let deadline = Instant::now() + PATIENCE;
        for (address, expected) in [
            ("127.0.0.1:7002", Some("127.0.0.1:7002")),
            ("localhost:7001", Some("127.0.0.1:7001")),
            ("localhost:7003", None),
            ("", None),
        ] {
            assert_eq!(of(address, &endpoints, deadline).await.as_deref(), expected, "{address}");
        }
        let names = ["store-0:7001".to_owned()];
        assert_eq!(of("store-0:7001", &names, deadline).await.as_deref(), Some("store-0:7001"));
    }
}
