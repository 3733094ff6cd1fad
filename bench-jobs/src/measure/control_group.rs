//! The control groups of this process that govern processors, version 1 and 2: where they are, and what quota binds them.
//!
//! What the system does not offer (a container that hides its control group) is absent.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use procfs::ProcessCGroup;
use procfs::process::{MountInfo, Process};

/// What a control group may use of the processors, and has used so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// At most so much, thousandths of a core.
    pub millicores: u64,
    /// What all its processes have used, nanoseconds. Absent: the group does not say.
    pub used_nanos: Option<u64>,
    /// The group as `/proc/PID/cgroup` of its processes begins with it.
    path: PathBuf,
}

impl Quota {
    /// A quota of the group at this path.
    pub fn new(millicores: u64, used_nanos: Option<u64>, path: PathBuf) -> Self {
        Self { millicores, used_nanos, path }
    }

    /// Whether a process is in the group.
    pub fn binds(&self, process: i32) -> bool {
        let text = read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
        text.lines().any(|line| line.splitn(3, ':').nth(2).is_some_and(|path| Path::new(path).starts_with(&self.path)))
    }
}

/// A control group as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Where its files would be.
    pub folder: PathBuf,
    /// As `/proc/PID/cgroup` of its processes begins with it.
    path: PathBuf,
}

/// This process's control group and its visible ancestors, the nearest first.
pub fn groups() -> Vec<Group> {
    let Ok(process) = Process::myself() else { return Vec::new() };
    let groups = process.cgroups().map(|groups| groups.0).unwrap_or_default();
    let mounts = process.mountinfo().map(|mounts| mounts.0).unwrap_or_default();
    candidates_in(&groups, &mounts)
}

/// The tightest quota that binds this process. Absent: it may use every processor.
pub fn quota() -> Option<Quota> {
    let read = |folder: &Path, file: &str| read_to_string(folder.join(file)).unwrap_or_default();
    let all = groups().into_iter().filter_map(|Group { folder, path }| {
        let millicores = millicores_of_second(&read(&folder, "cpu.max"))
            .or_else(|| millicores_of_first(&read(&folder, "cpu.cfs_quota_us"), &read(&folder, "cpu.cfs_period_us")))?;
        let used_nanos = used_nanos(&read(&folder, "cpu.stat"), &read(&folder, "cpuacct.usage"));
        Some(Quota::new(millicores, used_nanos, path))
    });
    all.min_by_key(|quota| quota.millicores)
}

/// Of `cpu.max` (version 2): quota and period, microseconds, or `max`.
fn millicores_of_second(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    share(quota.parse().ok()?, period.parse().ok()?)
}

/// Of `cpu.cfs_quota_us` and `cpu.cfs_period_us` (version 1); a quota of -1 is none.
fn millicores_of_first(quota: &str, period: &str) -> Option<u64> {
    share(quota.trim().parse().ok()?, period.trim().parse().ok()?)
}

fn share(quota_micros: u64, period_micros: u64) -> Option<u64> {
    (quota_micros * 1_000).checked_div(period_micros)
}

/// `usage_usec` of `cpu.stat` (version 2), or `cpuacct.usage` (version 1).
fn used_nanos(stat: &str, accounting: &str) -> Option<u64> {
    let second = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok());
    second.map(|micros| micros * 1_000).or_else(|| accounting.trim().parse().ok())
}

/// Where the process's control group for processors and its ancestors may be. Version 1 mounts each controller by
/// itself, version 2 has one tree (hierarchy 0). Inside a container the path may name a group that is not visible; the
/// root of the mount is then the group itself, which is always among the candidates.
fn candidates_in(groups: &[ProcessCGroup], mounts: &[MountInfo]) -> Vec<Group> {
    let mut found = Vec::new();
    for mount in mounts {
        let group = groups.iter().find(|group| match mount.fs_type.as_str() {
            "cgroup2" => group.hierarchy == 0,
            "cgroup" => {
                group.controllers.iter().any(|controller| controller == "cpu")
                    && mount.super_options.contains_key("cpu")
            }
            _ => false,
        });
        let Some(group) = group else { continue };
        let mut path = PathBuf::from(&group.pathname);
        // In a container the mount shows a subtree: take the path relative to it.
        let below = path.strip_prefix(&mount.root).or_else(|_| path.strip_prefix("/"));
        let mut folder = mount.mount_point.join(below.unwrap_or(Path::new("")));
        loop {
            found.push(Group { folder: folder.clone(), path: path.clone() });
            if folder == mount.mount_point || !folder.pop() {
                break;
            }
            path.pop();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead as _;
    use procfs::process::MountInfos;

    #[test]
    fn both_versions_of_quotas_and_use_are_read() {
        assert_eq!(millicores_of_second("150000 100000\n"), Some(1_500));
        assert_eq!(millicores_of_second("max 100000\n"), None);
        assert_eq!(millicores_of_first("200000\n", "100000\n"), Some(2_000));
        assert_eq!(millicores_of_first("-1\n", "100000\n"), None);
        assert_eq!(used_nanos("usage_usec 7\nuser_usec 3\n", ""), Some(7_000));
        assert_eq!(used_nanos("nr_periods 4\n", "9000\n"), Some(9_000));
        assert_eq!(used_nanos("nr_periods 4\n", ""), None);
    }

    #[test]
    fn this_process_is_bound_by_the_quota_of_its_own_group() {
        let text = read_to_string("/proc/self/cgroup").unwrap();
        let own = text.lines().next().and_then(|line| line.splitn(3, ':').nth(2)).unwrap().to_owned();
        let id = std::process::id().cast_signed();
        assert!(Quota::new(1_000, None, own.into()).binds(id));
        assert!(!Quota::new(1_000, None, "/of-somebody-else".into()).binds(id));
    }

    fn candidates(mount: &str, hierarchy: u32, controllers: &[&str], path: &str) -> Vec<String> {
        let mounts = MountInfos::from_read(mount.as_bytes()).unwrap().0;
        let group = ProcessCGroup {
            hierarchy,
            controllers: controllers.iter().map(|&name| name.to_owned()).collect(),
            pathname: path.to_owned(),
        };
        let found = candidates_in(&[group], &mounts);
        found.iter().map(|group| group.folder.display().to_string()).collect()
    }

    #[test]
    fn the_control_group_and_its_ancestors_are_found() {
        let second = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(
            candidates(second, 0, &[], "/pod/job"),
            ["/sys/fs/cgroup/pod/job", "/sys/fs/cgroup/pod", "/sys/fs/cgroup"]
        );
        let first = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                     33 31 0:30 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        assert_eq!(candidates(first, 1, &["cpu", "cpuacct"], "/pod"), ["/sys/fs/cgroup/cpu/pod", "/sys/fs/cgroup/cpu"]);
        let container = "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(candidates(container, 1, &["cpu"], "/docker/abc"), ["/sys/fs/cgroup/cpu/"]);
    }
}
