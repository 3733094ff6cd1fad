//! The program itself, alone and in a group, on a disk that is full. Needs root, to mount a small one.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::{TempDir, free_address, output, until};
use rusd::proto::etcdserverpb as pb;
use service_kit::grpc;

use crate::hostile::{call, connect, run, trailers};
use crate::process::{Rusd, Starting};

const DISK_BYTES: usize = 128 << 20;
const VALUE_BYTES: usize = 1 << 20;
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";

/// A file system in memory, where a server has its data. Dropped after the server.
struct Disk(PathBuf);

impl Disk {
    fn mount() -> (Self, TempDir) {
        let directory = harness::folder();
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES}"), "rusd"]).arg(&data);
        output(&mut mount);
        (Self(data), directory)
    }

    /// Somebody else's file, in all the room that is left.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("somebody-else");
        let mut file = fs::File::create(&path).unwrap();
        let mut bytes = VALUE_BYTES;
        while bytes > 0 {
            if file.write_all(&vec![1; bytes]).is_err() {
                bytes /= 2;
            }
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = self.0.parent().map(fs::remove_dir_all);
    }
}

/// Puts a value of a megabyte; what the client says if it is refused.
fn put(server: &Rusd, key: &str, fill: u8) -> Result<(), String> {
    let mut client = server.command(&["put", key]).stdin(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(&[fill; VALUE_BYTES]).unwrap();
    let output = client.wait_with_output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

/// Puts versions of one key until that is refused: how many there are, and what was said.
fn put_until_refused(server: &Rusd) -> (u8, String) {
    for version in 0..=127 {
        if let Err(refusal) = put(server, "k", version) {
            return (version, refusal);
        }
    }
    panic!("128 MB and their snapshots are on a disk of 128");
}

fn revision(server: &Rusd) -> String {
    let said = server.etcdctl(&["endpoint", "status", "-w", "json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    said[0]["Status"]["header"]["revision"].to_string()
}

#[test]
#[ignore = "needs root: mounts a small file system"]
fn a_full_disk_raises_the_alarm_and_compaction_makes_room_again() {
    let (disk, directory) = Disk::mount();
    let mut server = Rusd::start_on(directory, &[]);
    for _round in 0..2 {
        let (versions, refusal) = put_until_refused(&server);
        assert!(versions > 5, "{versions} MB fill a disk of 128");
        assert!(refusal.contains(NO_SPACE), "{refusal}");
        assert!(server.etcdctl(&["alarm", "list"]).contains("alarm:NOSPACE"));
        assert!(server.refused(&["put", "small", "1"]).contains(NO_SPACE));
        assert!(server.refused(&["lease", "grant", "60"]).contains(NO_SPACE));
        assert!(server.refused(&["endpoint", "health"]).contains("unhealthy"));
        server.etcdctl(&["alarm", "disarm"]);
        let (more, refusal) = put_until_refused(&server);
        assert!(
            refusal.contains(NO_SPACE) && more < versions,
            "there is hardly more room than before: {more}, {refusal}"
        );
        server = server.restart();
        let last = server.etcdctl(&["get", "k", "--print-value-only"]);
        let newest = if more > 0 { more - 1 } else { versions - 1 };
        assert_eq!(last.as_bytes()[..VALUE_BYTES], vec![newest; VALUE_BYTES], "what was acknowledged is there");
        assert_eq!(server.etcdctl(&["del", "k"]), "1\n");
        server.etcdctl(&["compaction", &revision(&server)]);
        assert!(server.etcdctl(&["defrag"]).contains("Finished defragmenting"));
        server.etcdctl(&["alarm", "disarm"]);
        put(&server, "k", 1).unwrap();
        assert!(server.etcdctl(&["alarm", "list"]).is_empty());
        assert!(server.etcdctl(&["endpoint", "health"]).contains("is healthy"));
    }
    drop(server);
    drop(disk);
}

/// A client that took nothing had a copy of everything on the disk, and the whole group the alarm for it.
#[test]
#[ignore = "needs root: mounts a small file system"]
fn a_backup_that_nobody_takes_gives_way_before_the_alarm() {
    let (disk, directory) = Disk::mount();
    let server = Rusd::start_on(directory, &[]);
    for version in 0..20 {
        put(&server, "k", version).unwrap();
    }
    run(async {
        let connection = connect(&server).await;
        let (answer, mut stream) = call(&connection, "Maintenance/Snapshot").await;
        stream.send_data(grpc::encode(&pb::SnapshotRequest {}), true).unwrap();
        // It is written: the first part of it has come.
        let (head, body) = answer.await.unwrap().into_parts();
        let refusal = (20..=u8::MAX).find_map(|version| {
            let refusal = put(&server, "k", version).err()?;
            // Whoever came at just that moment.
            (!refusal.contains("too many requests")).then_some(refusal)
        });
        let refusal = refusal.expect("twice as much as the disk has is not on it");
        assert!(refusal.contains(NO_SPACE), "{refusal}");
        let told = trailers(body, head.headers).await;
        assert_eq!(told["grpc-status"], "8", "the alarm was raised while the copy was there");
    });
    drop(server);
    drop(disk);
}

/// The next snapshot was expected there, too, though it is made where the data are.
#[test]
#[ignore = "needs root: mounts a small file system"]
fn a_disk_of_the_logs_own_has_no_room_taken_for_snapshots() {
    let (disk, directory) = Disk::mount();
    let server = Rusd::start(&[&format!("--wal-dir={}", disk.0.join("wal").display())]);
    // The log needs a part of that, and is cut by snapshots.
    for version in 0..120 {
        assert_eq!(put(&server, "k", version), Ok(()), "after {version} MB");
    }
    assert!(server.etcdctl(&["alarm", "list"]).is_empty());
    drop(server);
    drop((disk, directory));
}

#[test]
#[ignore = "needs root: mounts a small file system"]
fn a_disk_that_others_fill_is_waited_for() {
    let (disk, directory) = Disk::mount();
    let server = Rusd::start_on(directory, &[]);
    put(&server, "k", 1).unwrap();
    let file = disk.fill();
    let (_, refusal) = put_until_refused(&server);
    assert!(refusal.contains(NO_SPACE), "{refusal}");
    // It asked for snapshots without an end, and the client heard of its own timeout alone.
    let refusal = server.refused(&["defrag"]);
    assert!(refusal.contains("no room for a snapshot") && refusal.contains("make room"), "{refusal}");
    // It is there for whoever still wants something of it.
    assert!(server.etcdctl(&["alarm", "list"]).contains("alarm:NOSPACE"));
    assert_eq!(server.etcdctl(&["get", "k", "--count-only", "--write-out=fields"]).matches("\"Count\" : 1").count(), 1);
    fs::remove_file(&file).unwrap();
    server.etcdctl(&["alarm", "disarm"]);
    put(&server, "k", 2).unwrap();
    assert_eq!(server.etcdctl(&["del", "k"]), "1\n");
    drop(server);
    drop(disk);
}

/// Three members, of which the one with this data directory and the other two know each other.
fn group_with(directory: TempDir) -> [Rusd; 3] {
    let addresses = [(); 3].map(|()| free_address());
    let all = [0, 1, 2].map(|number: usize| format!("m{number}=http://{}", addresses[number])).join(",");
    let other = || harness::folder();
    let mut number = 0;
    let starting = [other(), other(), directory].map(|directory| {
        let address = addresses[number];
        let flags = vec![
            format!("--name=m{number}"),
            format!("--listen-peer-urls=http://{address}"),
            format!("--initial-advertise-peer-urls=http://{address}"),
            format!("--initial-cluster={all}"),
        ];
        number += 1;
        Rusd::spawn(directory, flags)
    });
    starting.map(Starting::ready)
}

/// Its number, and whether it leads.
fn standing(server: &Rusd) -> (String, bool) {
    let said = server.etcdctl(&["endpoint", "status", "-w", "json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let (own, leader) = (&said[0]["Status"]["header"]["member_id"], &said[0]["Status"]["leader"]);
    (format!("{:x}", own.as_u64().unwrap()), own == leader)
}

/// As in a group of etcd whose quota is full at one member: that one raises the alarm, and it holds for all.
#[test]
#[ignore = "needs root: mounts a small file system"]
fn a_follower_whose_disk_is_full_raises_the_alarm_and_the_group_goes_on() {
    let (disk, directory) = Disk::mount();
    let servers = group_with(directory);
    let [first, second, small] = &servers;
    let (id, leads) = standing(small);
    if leads {
        small.etcdctl(&["move-leader", &standing(first).0]);
        until("another leader", || !standing(small).1);
    }
    put(first, "k", 1).unwrap();
    let file = disk.fill();
    // How many blanks stand between both is the client's mood.
    let member = format!("memberID:{}", u64::from_str_radix(&id, 16).unwrap());
    until("the alarm", || {
        let alarms = second.etcdctl(&["alarm", "list"]);
        alarms.contains(&member) && alarms.contains("alarm:NOSPACE")
    });
    for server in &servers {
        until("a refusal", || put(server, "k", 2).is_err_and(|refusal| refusal.contains(NO_SPACE)));
        assert_eq!(server.etcdctl(&["get", "k", "--print-value-only"]).as_bytes()[..VALUE_BYTES], vec![1; VALUE_BYTES]);
    }
    // What makes room is done by all of them, the full one included.
    assert_eq!(first.etcdctl(&["del", "k"]), "1\n");
    first.etcdctl(&["compaction", &revision(first)]);
    fs::remove_file(&file).unwrap();
    for server in &servers {
        assert!(server.etcdctl(&["defrag"]).contains("Finished defragmenting"));
    }
    small.etcdctl(&["alarm", "disarm"]);
    for (server, fill) in servers.iter().zip(3..) {
        put(server, "k", fill).unwrap();
        for other in &servers {
            let seen = other.etcdctl(&["get", "k", "--print-value-only"]);
            assert_eq!(seen.as_bytes()[..VALUE_BYTES], vec![fill; VALUE_BYTES]);
        }
        assert!(server.etcdctl(&["alarm", "list"]).is_empty());
        assert!(server.etcdctl(&["endpoint", "health"]).contains("is healthy"));
    }
    drop(servers);
    drop(disk);
}
