//! Where each method is found: the `google.api.http` options of etcd's `rpc.proto`, `v3lock.proto` and `v3election.proto`.

/// The method behind a path, as gRPC names it.
pub fn method(path: &str) -> Option<String> {
    // Paths of before etcd 3.4.
    let rest = path.strip_prefix("/v3/").or_else(|| path.strip_prefix("/v3beta/"))?;
    let method = PATHS.iter().find(|(known, _)| *known == rest).map(|(_, method)| *method)?;
    let package = match method.split_once('/') {
        Some(("Lock", _)) => "v3lockpb",
        Some(("Election", _)) => "v3electionpb",
        _ => "etcdserverpb",
    };
    Some(format!("/{package}.{method}"))
}

const PATHS: &[(&str, &str)] = &[
    ("kv/range", "KV/Range"),
    ("kv/put", "KV/Put"),
    ("kv/deleterange", "KV/DeleteRange"),
    ("kv/txn", "KV/Txn"),
    ("kv/compaction", "KV/Compact"),
    ("watch", "Watch/Watch"),
    ("lease/grant", "Lease/LeaseGrant"),
    ("lease/revoke", "Lease/LeaseRevoke"),
    ("kv/lease/revoke", "Lease/LeaseRevoke"),
    ("lease/keepalive", "Lease/LeaseKeepAlive"),
    ("lease/timetolive", "Lease/LeaseTimeToLive"),
    ("kv/lease/timetolive", "Lease/LeaseTimeToLive"),
    ("lease/leases", "Lease/LeaseLeases"),
    ("kv/lease/leases", "Lease/LeaseLeases"),
    ("cluster/member/add", "Cluster/MemberAdd"),
    ("cluster/member/remove", "Cluster/MemberRemove"),
    ("cluster/member/update", "Cluster/MemberUpdate"),
    ("cluster/member/list", "Cluster/MemberList"),
    ("cluster/member/promote", "Cluster/MemberPromote"),
    ("maintenance/alarm", "Maintenance/Alarm"),
    ("maintenance/status", "Maintenance/Status"),
    ("maintenance/defragment", "Maintenance/Defragment"),
    ("maintenance/hash", "Maintenance/Hash"),
    ("maintenance/hashkv", "Maintenance/HashKV"),
    ("maintenance/snapshot", "Maintenance/Snapshot"),
    ("maintenance/transfer-leadership", "Maintenance/MoveLeader"),
    ("maintenance/downgrade", "Maintenance/Downgrade"),
    ("auth/enable", "Auth/AuthEnable"),
    ("auth/disable", "Auth/AuthDisable"),
    ("auth/status", "Auth/AuthStatus"),
    ("auth/authenticate", "Auth/Authenticate"),
    ("auth/user/add", "Auth/UserAdd"),
    ("auth/user/get", "Auth/UserGet"),
    ("auth/user/list", "Auth/UserList"),
    ("auth/user/delete", "Auth/UserDelete"),
    ("auth/user/changepw", "Auth/UserChangePassword"),
    ("auth/user/grant", "Auth/UserGrantRole"),
    ("auth/user/revoke", "Auth/UserRevokeRole"),
    ("auth/role/add", "Auth/RoleAdd"),
    ("auth/role/get", "Auth/RoleGet"),
    ("auth/role/list", "Auth/RoleList"),
    ("auth/role/delete", "Auth/RoleDelete"),
    ("auth/role/grant", "Auth/RoleGrantPermission"),
    ("auth/role/revoke", "Auth/RoleRevokePermission"),
    ("lock/lock", "Lock/Lock"),
    ("lock/unlock", "Lock/Unlock"),
    ("election/campaign", "Election/Campaign"),
    ("election/proclaim", "Election/Proclaim"),
    ("election/leader", "Election/Leader"),
    ("election/observe", "Election/Observe"),
    ("election/resign", "Election/Resign"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::schema;

    #[test]
    fn behind_every_path_is_a_method_that_is_known() {
        for (path, _) in PATHS {
            let method = method(&format!("/v3/{path}")).unwrap();
            assert!(schema::call(&method).is_some(), "{method}");
        }
        assert_eq!(method("/v3beta/kv/put"), method("/v3/kv/put"));
        assert_eq!(method("/v3/kv/nothing"), None);
    }
}
