//! Going back to the release before: validate, enable, cancel. From etcd's `server/etcdserver/v3_server.go` and
//! `server/etcdserver/version/{downgrade,manager}.go`.
//!
//! While a downgrade is enabled, the group speaks the version it shall go back to. What it then goes back to is an etcd of that
//! version, from a snapshot: there is no older rusd.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use service_kit::grpc::{self, Code, Status, Unary, decode};

use crate::api::Api;
use crate::node::{CLUSTER_VERSION, Node};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::downgrade_request::DowngradeAction;
use crate::store::command::Kind;
use crate::store::{Access, Caller, Cluster, Error};

impl Api {
    pub(super) fn downgrade(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::DowngradeRequest = decode(message)?;
        self.permit(call, Access::Administrate)?;
        let node = Arc::clone(&self.node);
        Ok(Unary::Later(Box::pin(async move {
            let (view, _) = node.view().await?;
            let version = minor(&view.cluster.version).ok_or(Error::ClusterVersionUnavailable);
            match DowngradeAction::try_from(request.action) {
                Ok(DowngradeAction::Validate) => drop(validate(&request.version, &view.cluster)?),
                Ok(DowngradeAction::Enable) => {
                    let target = validate(&request.version, &view.cluster)?;
                    set(&node, true, &format!("{}.{}.0", target.0, target.1)).await?;
                }
                // Where there is none, etcd says nothing of it either.
                Ok(DowngradeAction::Cancel) if view.cluster.downgrade.enabled => set(&node, false, "").await?,
                Ok(DowngradeAction::Cancel) => {}
                Err(_) => return Err(Status::new(Code::Unknown, "etcdserver: unknown method")),
            }
            let (major, minor) = version?;
            let version = format!("{major}.{minor}");
            Ok(grpc::encode(&pb::DowngradeResponse { header: Some(node.header_now()), version }))
        })))
    }
}

/// Begins a downgrade, or ends it.
async fn set(node: &Node, enabled: bool, target_version: &str) -> Result<(), Status> {
    let info = pb::DowngradeInfo { enabled, target_version: target_version.to_owned() };
    node.propose(&Caller::Server, Kind::Downgrade, &info.encode_to_vec()).await?;
    let ver = if enabled { target_version } else { CLUSTER_VERSION }.to_owned();
    let version = pb::DowngradeVersionTestRequest { ver };
    node.propose(&Caller::Server, Kind::ClusterVersion, &version.encode_to_vec()).await?;
    Ok(())
}

/// The version to go back to, if that may be gone back to.
fn validate(target: &str, cluster: &Cluster) -> Result<(u64, u64), Error> {
    let target = minor(target).or_else(|| minor(&format!("{target}.0"))).ok_or(Error::WrongDowngradeVersionFormat)?;
    let (major, minor) = minor(&cluster.version).ok_or(Error::ClusterVersionUnavailable)?;
    if target != (major, minor.wrapping_sub(1)) {
        return Err(Error::InvalidDowngradeTargetVersion);
    }
    if cluster.downgrade.enabled { Err(Error::DowngradeInProcess) } else { Ok(target) }
}

/// Major and minor of `MAJOR.MINOR.PATCH`.
fn minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split(['-', '+']).next()?.split('.').map(|part| part.parse::<u64>().ok());
    let found = (parts.next()??, parts.next()??);
    parts.next()??;
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_release_before_may_be_gone_back_to() {
        let mut cluster = Cluster::default();
        cluster.version = "3.7.0".into();
        assert_eq!(validate("3.6.0", &cluster), Ok((3, 6)));
        assert_eq!(validate("3.6", &cluster), Ok((3, 6)));
        assert_eq!(validate("3.6.5-rc.1", &cluster), Ok((3, 6)));
        for version in ["3.7.0", "3.5.0", "4.6.0"] {
            assert_eq!(validate(version, &cluster), Err(Error::InvalidDowngradeTargetVersion), "{version}");
        }
        for version in ["", "3", "3.6.0.0", "three", "3.x.0"] {
            assert_eq!(validate(version, &cluster), Err(Error::WrongDowngradeVersionFormat), "{version}");
        }
        cluster.downgrade.enabled = true;
        assert_eq!(validate("3.6.0", &cluster), Err(Error::DowngradeInProcess));
        cluster.version.clear();
        assert_eq!(validate("3.6.0", &cluster), Err(Error::ClusterVersionUnavailable));
    }
}
