//! Backups: kept from a group that works, looked at, and begun with by another group.

use std::process::Command;
use std::time::{Duration, Instant};

use d_engine_client::{Operation, ReadLevel, Scan, Transaction};
use harness::{Process, command};

use crate::group::{Group, PATIENCE, PROGRAM, free};

fn verify(file: &str) -> Result<String, String> {
    let output = Command::new(PROGRAM).args(["ctl", "snapshot", "verify", file]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[tokio::test]
async fn a_group_that_begins_with_a_backup_has_what_it_has_and_goes_on_behind_it() {
    let folder = harness::folder();
    let file = folder.path().join("backup").to_str().unwrap().to_owned();
    let group = Group::start(3);
    group.leader().await;
    let client = group.client().await;
    for number in 0..300_u32 {
        client.put(format!("k{number}"), vec![7; 3000]).await.unwrap();
    }
    let lease = client.grant_lease(Duration::from_secs(3600)).await.unwrap().number;
    client.put_with_lease("leased", "v", lease).await.unwrap();
    let session = client.session().await.unwrap();
    let add = Transaction::of(Operation::Add { key: "sum".into(), delta: 3 });
    let last = session.transact(add, PATIENCE).await.unwrap().revision;
    let said = group.ctl(&["snapshot", "save", &file]).unwrap();
    assert!(said.contains("keys 302"), "{said}");
    // The new group knows nothing of it.
    let late = client.put("late", "v").await.unwrap();
    assert_eq!(verify(&file).unwrap(), said);
    drop(group);

    // In memory, and on disk, and again without the flag.
    for storage in ["memory", "disk"] {
        let flags = ["--restore", &file, "--group", storage, "--storage", storage];
        let mut group = Group::start_with(3, &flags);
        let leader = group.leader().await;
        let client = group.client().await;
        let found = client.scan(Scan { keys_only: true, ..Scan::default() }, ReadLevel::Linearizable).await.unwrap();
        assert_eq!(found.value.items.len(), 302);
        let sum = client.get("sum").await.unwrap().unwrap();
        assert_eq!((&*sum.value, sum.revision), (&b"3"[..], last));
        assert_eq!(client.get("leased").await.unwrap().unwrap().lease, lease);
        assert!(client.keep_alive(lease).await.unwrap().is_some());
        let next = client.put("k0", "w").await.unwrap();
        assert!(next > late + 999_999_000, "a token may be given twice: {next} after {late}");
        group.kill(leader);
        group.forget_flags(&["--restore", &file]);
        group.start_member(leader);
        for id in 1..=3 {
            group.wait_until_it_serves(id).await;
            let seen = group.client_of(id).await.get_with("k0", ReadLevel::Linearizable).await.unwrap();
            assert_eq!(seen.value.map(|item| item.revision), Some(next), "member {id}");
        }
    }
}

/// It would hold a thread and the state of that moment for as long as it likes.
#[tokio::test]
async fn a_client_that_takes_nothing_of_a_snapshot_is_ended() {
    use d_engine_client::grpc::{Channel, GrpcError};
    use d_engine_client::wire::{SnapshotPiece, SnapshotRequest};
    // A piece may take ten times as long, and here no disk takes part.
    let group = Group::start_with(1, &["--request-timeout-ms", "300", "--durability", "none"]);
    group.leader().await;
    let client = group.client().await;
    // More than a client and the connection take ahead.
    for number in 0..12 {
        client.put(format!("{number}"), vec![b'v'; 1 << 20]).await.unwrap();
    }
    let channel = Channel::connect(&group.addresses[0]).await.unwrap();
    let path = "/storebench.dengine.v1.Store/Snapshot";
    let (_questions, mut pieces) = channel.stream::<_, SnapshotPiece>(path, &SnapshotRequest {}, true).await.unwrap();
    assert!(pieces.next().await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(8)).await;
    let ended = tokio::time::timeout(PATIENCE, async {
        loop {
            match pieces.next().await {
                Ok(Some(_)) => {}
                ended => return ended,
            }
        }
    });
    let ended = ended.await.unwrap();
    assert!(matches!(&ended, Err(GrpcError::Status { message, .. }) if message.contains("not taken")), "{ended:?}");
}

#[tokio::test]
async fn a_damaged_backup_is_refused_by_who_looks_and_by_who_begins() {
    let folder = harness::folder();
    let file = folder.path().join("backup").to_str().unwrap().to_owned();
    let group = Group::start(1);
    group.leader().await;
    group.client().await.put("key", "a value that is long enough").await.unwrap();
    group.ctl(&["snapshot", "save", &file]).unwrap();
    let whole = std::fs::read(&file).unwrap();
    for at in [5, 30, 40, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&file, damaged).unwrap();
        let said = verify(&file).unwrap_err();
        assert!(said.contains("no backup") || said.contains("damaged"), "byte {at}: {said}");
    }
    for length in [0, 20, whole.len() - 1] {
        std::fs::write(&file, &whole[..length]).unwrap();
        assert!(verify(&file).is_err(), "of {length} bytes");
        let mut refused = Group::start_with(1, &["--restore", &file]);
        let (status, said) = refused.wait_for_end(1);
        assert!(!status.success() && said.contains("backup"), "{status}: {said}");
        assert!(!refused.directory(1).join("wal").exists(), "it has begun all the same");
    }
    // What cannot be asked leaves nothing behind.
    let nobody = harness::free_address().to_string();
    let other = folder.path().join("other");
    let mut command = Command::new(PROGRAM);
    command.args(["ctl", "--endpoints", &nobody, "snapshot", "save"]).arg(&other);
    assert!(!command.output().unwrap().status.success());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something is left");
}

/// It has the hashes of all passwords. What an earlier release left half done is readable by everybody, too.
#[cfg(unix)]
#[tokio::test]
async fn a_backup_is_its_owners_to_read() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = harness::folder();
    let file = folder.path().join("backup");
    std::fs::write(folder.path().join("backup.part"), "half").unwrap();
    let group = Group::start(1);
    group.leader().await;
    group.client().await.put("k", "v").await.unwrap();
    group.ctl(&["snapshot", "save", file.to_str().unwrap()]).unwrap();
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{mode:o}");
}

/// The old data were served, and nothing said so.
#[tokio::test]
async fn it_is_told_whether_a_backup_is_begun_with_or_not_looked_at() {
    let folder = harness::folder();
    let file = folder.path().join("backup").to_str().unwrap().to_owned();
    let group = Group::start(1);
    group.leader().await;
    group.client().await.put("k", "v").await.unwrap();
    group.ctl(&["snapshot", "save", &file]).unwrap();
    drop(group);
    let starts = |directory: &str, flags: &[&str], wanted: &str| {
        let (address, log) = (free(1).remove(0), folder.path().join("log"));
        let mut member = command(PROGRAM);
        member.args(["serve", "--node-id", "1", "--listen-address", &address, "--db-root-dir"]);
        member.arg(folder.path().join(directory)).args(flags).stderr(std::fs::File::create(&log).unwrap());
        let mut running = Process::start(&mut member);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = std::fs::read_to_string(&log).unwrap();
            if said.contains(wanted) {
                running.kill();
                return said;
            }
            assert!(Instant::now() < deadline, "{said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let restore = ["--restore", &file];
    let said = starts("restored", &restore, "listening");
    assert!(said.contains("the member begins with a backup") && said.contains("\"keys\":1"), "{said}");
    assert!(!said.contains("begins with nothing"), "{said}");
    // The flag may stay.
    let said = starts("restored", &restore, "listening");
    assert!(!said.contains("backup (--restore)"), "{said}");
    assert!(starts("other", &[], "listening").contains("begins with nothing"));
    let said = starts("other", &restore, "listening");
    let told = said.lines().find(|line| line.contains("(--restore) is not looked at")).unwrap();
    assert!(told.contains("WARN") && told.contains("/other") && told.contains("empty directories"), "{told}");
}

#[tokio::test]
async fn a_founder_without_the_backup_of_the_others_is_told_how_to_begin() {
    let folder = harness::folder();
    let file = folder.path().join("backup").to_str().unwrap().to_owned();
    let mut group = Group::start(3);
    group.leader().await;
    group.ctl_until(&["snapshot", "save", &file]);
    group.kill(3);
    std::fs::remove_dir_all(group.directory(3)).unwrap();
    group.start_by(3, "true", &["--restore", &file]);
    let deadline = Instant::now() + PATIENCE;
    while !group.log(3).contains("With --restore all of them are given the same file and --group, each with an empty") {
        assert!(Instant::now() < deadline, "{}", group.log(3));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
