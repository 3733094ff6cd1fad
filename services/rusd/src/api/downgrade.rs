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
                    let target = may_enable(&request.version, &view.cluster)?;
                    set(&node, true, &format!("{}.{}.0", target.0, target.1)).await?;
                }
                // Where there is none, etcd says nothing of it either.
                Ok(DowngradeAction::Cancel) if has_to_cancel(&view.cluster) => set(&node, false, "").await?,
                Ok(DowngradeAction::Cancel) => {}
                Err(_) => return Err(Status::new(Code::Unknown, "etcdserver: unknown method")),
            }
            let (major, minor) = version?;
            let version = format!("{major}.{minor}");
            Ok(grpc::encode(&pb::DowngradeResponse { header: Some(node.header_now()), version }))
        })))
    }
}

/// Begins a downgrade, or ends it: two commands. When only the first has succeeded, asking once more completes it.
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
    let target = before(target, cluster)?;
    if cluster.downgrade.enabled { Err(Error::DowngradeInProcess) } else { Ok(target) }
}

/// As [`validate`]; one that has begun, and of which the group's version does not know yet, may be enabled again.
fn may_enable(target: &str, cluster: &Cluster) -> Result<(u64, u64), Error> {
    match validate(target, cluster) {
        Err(Error::DowngradeInProcess) => {
            let begun = minor(&cluster.downgrade.target_version);
            before(target, cluster).ok().filter(|target| begun == Some(*target)).ok_or(Error::DowngradeInProcess)
        }
        other => other,
    }
}

/// Whether there is a downgrade, or something left of one.
fn has_to_cancel(cluster: &Cluster) -> bool {
    cluster.downgrade.enabled || (!cluster.version.is_empty() && cluster.version != CLUSTER_VERSION)
}

/// The version to go back to, if it is the one before.
fn before(target: &str, cluster: &Cluster) -> Result<(u64, u64), Error> {
    let target = minor(target).or_else(|| minor(&format!("{target}.0"))).ok_or(Error::WrongDowngradeVersionFormat)?;
    let (major, minor) = minor(&cluster.version).ok_or(Error::ClusterVersionUnavailable)?;
    if target == (major, minor.wrapping_sub(1)) { Ok(target) } else { Err(Error::InvalidDowngradeTargetVersion) }
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

    /// The flag and the version disagreed until a restart when only the first of both commands had succeeded.
    #[test]
    fn half_of_a_downgrade_is_completed_by_asking_again() {
        let mut cluster = Cluster::default();
        assert!(!has_to_cancel(&cluster), "there is no version yet");
        cluster.version = CLUSTER_VERSION.into();
        assert!(!has_to_cancel(&cluster));
        cluster.downgrade = pb::DowngradeInfo { enabled: true, target_version: "3.6.0".into() };
        assert_eq!(validate("3.6.0", &cluster), Err(Error::DowngradeInProcess));
        assert_eq!(may_enable("3.6.0", &cluster), Ok((3, 6)));
        assert!(has_to_cancel(&cluster));
        cluster.version = "3.6.0".into();
        assert_eq!(may_enable("3.6.0", &cluster), Err(Error::InvalidDowngradeTargetVersion));
        assert_eq!(may_enable("3.5.0", &cluster), Err(Error::DowngradeInProcess));
        cluster.downgrade = pb::DowngradeInfo::default();
        assert!(has_to_cancel(&cluster), "the version is still that of before");
    }
}
