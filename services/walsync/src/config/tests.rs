use super::found::{is_meant, matches};
use super::*;

#[test]
fn a_mistyped_url_is_not_taken_for_a_folder() {
    let open = |url| Location::open(url, &S3Options::default()).map(drop);
    for url in [
        "s3:/bucket",
        "s3:bucket",
        "s3//bucket",
        "S3://bucket",
        "gs:bucket",
        "abs//a@b",
        "file:/x",
        "file://relative/x",
    ] {
        let refusal = open(url).unwrap_err().to_string();
        assert!(refusal.contains(url) && refusal.contains("s3://bucket/prefix"), "{refusal}");
    }
    for folder in ["/folder", "backups", "./s3:/folder", "file:///folder"] {
        assert!(open(folder).is_ok(), "{folder}");
    }
}

#[test]
fn a_path_that_only_a_shell_would_understand_is_refused_and_not_waited_for_without_an_end() {
    for path in ["~/app", "~", "~me/app", "$HOME/app", "${HOME}/app"] {
        let ours = |words: &str| {
            let config = Config::parse(&words.replace("PATH", path)).unwrap();
            let store = Location::open(&config.store, &config)?;
            config.settings()?;
            config.databases(&store, &mut Places::default()).map(drop)
        };
        for (field, words) in [
            ("databases.path", "{store: /s, databases: [{path: 'PATH'}]}"),
            ("databases.path", "{store: /s, databases: [{path: 'PATH/*.db'}]}"),
            ("store", "{store: 'PATH', databases: [{path: /a.db}]}"),
            ("staging-folder", "{store: /s, staging-folder: 'PATH', databases: [{path: /a.db}]}"),
            ("restore-drill.folder", "{store: /s, restore-drill: {folder: 'PATH'}, databases: [{path: /a.db}]}"),
        ] {
            let said = ours(words).unwrap_err().to_string();
            assert!(said.starts_with(&format!("{field}: {path}")) && said.contains("write the whole path"), "{said}");
        }
        let called_so = "{store: './PATH-store', staging-folder: './PATH', databases: [{path: './PATH'}]}";
        assert!(ours(called_so).is_ok(), "{path}");
    }
}

#[test]
fn what_litestream_means_by_a_path_is_meant_of_databases_folders_and_replicas() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_str().unwrap();
    std::fs::write(folder.path().join("a.db"), "SQLite format 3\0...").unwrap();
    let listed = |words: &str| {
        let text = format!("dbs: [{{{}}}]", words.replace("HERE", here));
        litestream::Litestream::parse(&text).map_err(|error| error.to_string()).map(|read| read.listed().unwrap())
    };
    let at = |name: &str| folder.path().join(name);
    let entry = |replica: &str| Ok(vec![(at("a.db"), replica.replace("HERE", here))]);
    assert_eq!(listed("path: 'sqlite3://HERE/a.db', replica: {path: HERE/r}"), entry("file://HERE/r"));
    let words = "dir: 'sqlite://HERE', pattern: '*.db', replica: {type: file, path: HERE/r}";
    assert_eq!(listed(words), entry("file://HERE/r/a.db"));
    let home = listed("path: ~/a.db, replica: {path: ~/r}").unwrap().remove(0);
    assert!(home.0.is_absolute() && home.0.ends_with("a.db") && !home.0.starts_with(std::env::current_dir().unwrap()));
    assert_eq!(home.1, format!("file://{}", home.0.with_file_name("r").display()));
    let relative = format!("file://{}", std::env::current_dir().unwrap().join("r").display());
    assert_eq!(listed("path: HERE/a.db, replica: {path: r}"), entry(&relative));
    let refused = listed("path: HERE/a.db, replica: {path: 'file:///r'}").unwrap_err();
    assert!(refused.contains("say url for a place"), "{refused}");
}

#[test]
fn parts_and_drills_that_cannot_be_are_refused_by_name() {
    let open = |bytes| {
        let (access_key_id, secret_access_key) = (Some("a".into()), Some("s".into()));
        let options = S3Options { access_key_id, secret_access_key, part_bytes: Some(bytes), ..S3Options::default() };
        Location::open("s3://bucket/prefix", &options).map(drop)
    };
    for bytes in [0, (5 << 20) - 1, (5 << 30) + 1] {
        assert!(open(bytes).unwrap_err().to_string().starts_with("s3.part-bytes: must be from 5242880"), "{bytes}");
    }
    assert!(open(5 << 20).is_ok() && open(5 << 30).is_ok());
    let drill = |words: &str| {
        let text = format!("{{store: /s, restore-drill: {{{words}}}, databases: [{{path: /a.db}}]}}");
        let config = Config::parse(&text)?;
        let drill = config.settings()?.drill.unwrap();
        config.check_drill_folder().map(|()| drill)
    };
    let day = drill("folder: /").unwrap();
    assert_eq!((day.interval, day.databases), (Duration::from_secs(86_400), 1));
    for (words, field) in [
        ("folder: /, interval-seconds: 0", "restore-drill.interval-seconds: must"),
        ("folder: /, databases: 0", "restore-drill.databases: must"),
        ("folder: /none", "restore-drill.folder: /none is not a folder"),
        ("databases: 1", "folder"),
        ("folder: /, sample: 1", "sample"),
    ] {
        let error = drill(words).unwrap_err().to_string();
        assert!(error.contains(field), "{words}: {error}");
    }
}

#[test]
fn a_wal_may_grow_by_what_is_said_and_by_no_less_than_sqlite_lets_it() {
    let bytes = |words: &str| {
        let config = Config::parse(&format!("{{store: /s, {words} databases: [{{path: /a.db}}]}}")).unwrap();
        config.settings().map(|settings| settings.wal_bytes_max).map_err(|error| error.to_string())
    };
    assert_eq!((bytes(""), bytes("wal-bytes-max: 8388608,")), (Ok(4 << 30), Ok(8 << 20)));
    assert!(bytes("wal-bytes-max: 1000,").unwrap_err().starts_with("wal-bytes-max: must be 4194304 or more"));
}

#[test]
fn stars_stand_for_anything() {
    for (pattern, name, expected) in [
        ("*.db", "a.db", true),
        ("*.db", "a.db-wal", false),
        ("a*b*c", "aXbYbc", true),
        ("a*b*c", "aXbYb", false),
        ("*", "", true),
        ("ä*", "äö", true),
    ] {
        assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
    }
    assert!(!is_meant("*.db", ".walsync-restore-x.db") && is_meant(".*.db", ".x.db") && is_meant("*.db", "x.db"));
}

#[test]
fn a_cloud_is_named_in_walsyncs_words_and_in_litestreams() {
    let (gcs, azure) =
        (GcsOptions::default(), AzureOptions { account_name: Some("here".into()), ..Default::default() });
    let parse = |url: &str| clouds::parse(url, &gcs, &azure, |_| None).map_err(|error| error.to_string());
    let endpoint = |at: &str| Some(at.to_owned());
    let (bucket, prefix) = ("b".to_owned(), "a/c".to_owned());
    let options = GcsOptions { endpoint: endpoint("http://127.0.0.1:4443"), ..gcs.clone() };
    let place = clouds::CloudPlace::Gcs { bucket, prefix, options };
    assert_eq!(parse("gs://b/a/c/?endpoint=http://127.0.0.1:4443"), Ok(Some(place)));
    for (url, account) in [("abs://me@c", "me"), ("abs://c", "here")] {
        let (account, container, prefix) = (account.to_owned(), "c".to_owned(), String::new());
        let place = clouds::CloudPlace::Azure { account, container, prefix, options: azure.clone() };
        assert_eq!(parse(url), Ok(Some(place)), "{url}");
    }
    assert_eq!(parse("s3://b/a"), Ok(None));
    for (url, problem) in [
        ("gs://", "no bucket"),
        ("abs://me@", "no container"),
        ("abs://@c", "no account"),
        ("gs://b?region=x", "\"region\" is unknown"),
    ] {
        let error = parse(url).unwrap_err();
        assert!(error.starts_with("store: ") && error.contains(problem), "{url}: {error}");
    }
    let nobody = clouds::parse("abs://c/p", &gcs, &AzureOptions::default(), |_| None).unwrap_err().to_string();
    assert!(nobody.contains("write it as abs://account@container/prefix"), "{nobody}");
}

#[cfg(not(feature = "clouds"))]
#[test]
fn a_walsync_without_clouds_says_so_in_one_line_and_how_to_get_one() {
    let own = |store: &str, words: &str| {
        let text = format!("{{store: \"{store}\", {words} databases: [{{path: /a.db}}]}}");
        let config = Config::parse(&text).unwrap();
        Location::open(&config.store, &config).map(drop).unwrap_err().to_string()
    };
    let theirs = |replica: &str| {
        let text = format!("dbs: [{{path: /a.db, replica: {{{replica}}}}}]");
        let configuration = Either::Litestream(Box::new(litestream::Litestream::parse(&text).unwrap()));
        configuration.open(true).err().unwrap().to_string()
    };
    for (error, place) in [
        (own("gs://b/p", "gcs: {credentials: /key.json},"), "store: gs://b: "),
        (own("abs://a@c/p", "azure: {account-key: a2V5},"), "store: abs://a@c: "),
        (theirs("url: \"gs://b/p\""), "store: gs://b: "),
        (theirs("type: gs, bucket: b, path: p"), "store: gs://b: "),
        (theirs("type: abs, account-name: a, account-key: a2V5, bucket: c, path: p"), "store: abs://a@c: "),
    ] {
        assert!(error.starts_with(place) && error.ends_with("cargo build -p walsync --features clouds"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[cfg(feature = "clouds")]
#[test]
fn clouds_are_opened_by_their_words_and_what_cannot_be_is_refused_by_name() {
    let open = |store: &str, words: &str| {
        let text = format!("{{store: \"{store}\", {words} databases: [{{path: /a.db}}]}}");
        let config = Config::parse(&text)?;
        Location::open(&config.store, &config).map(|location| location.place("a.db").to_string())
    };
    let azure = "azure: {account-key: a2V5, endpoint: \"http://127.0.0.1:10000/a\"},";
    assert_eq!(open("abs://a@c/p", azure).unwrap(), "abs://a@c/p/a.db at 127.0.0.1:10000/a");
    assert_eq!(open("abs://a@c/p", "azure: {sas-token: \"?sv=1&sig=x\"},").unwrap(), "abs://a@c/p/a.db");
    let gcs = "gcs: {endpoint: \"http://127.0.0.1:4443\"},";
    assert_eq!(open("gs://b/p", gcs).unwrap(), "gs://b/p/a.db at 127.0.0.1:4443");
    for (store, words, problem) in [
        ("gs://b", "gcs: {endpoint: \"http://127.0.0.1:1\", part-bytes: 1},", "gcs.part-bytes: must be from 262144"),
        ("abs://a@c", "azure: {account-key: a2V5, part-bytes: 1},", "azure.part-bytes: must be from 262144"),
        ("abs://a@c", "azure: {account-key: \"?\"},", "the account's key is not in base64"),
        ("abs://a@c", "azure: {sas-token: s, endpoint: \"http://elsewhere\"},", "for https:// alone"),
        ("gs://b", "gcs: {credentials: /none.json},", "/none.json: No such file"),
        ("gs://b", "gcs: {bucket: b},", "bucket"),
    ] {
        let error = open(store, words).unwrap_err().to_string();
        assert!(error.contains(problem), "{store} {words}: {error}");
    }
    // Nobody logs in to say what a configuration means.
    let explained = |store| Location::open_as(store, StoreOptions::default(), false).map(|location| location.place(""));
    assert_eq!(explained("abs://a@c/p").unwrap().to_string(), "abs://a@c/p");
    assert_eq!(explained("gs://b/p").unwrap().to_string(), "gs://b/p");
}

#[cfg(feature = "clouds")]
#[test]
fn litestreams_words_for_clouds_are_honoured() {
    let read = |replica: &str| {
        let text = format!("account-key: a2V5\ndbs: [{{path: /a.db, replica: {{{replica}}}}}]");
        let read = litestream::Litestream::parse(&text).map_err(|error| error.to_string())?;
        let name = ltx::FileName { min_txid: 1, max_txid: 1 };
        let replica = read.replica(Path::new("/a.db")).unwrap().map_err(|error| error.to_string())?;
        Ok::<_, String>((read.listed().unwrap()[0].1.clone(), replica.key(0, name)))
    };
    // As Litestream lays it out in these stores.
    let key = "p/q/ltx/0/0000000000000001-0000000000000001.ltx".to_owned();
    let at = |url: &str| Ok((url.to_owned(), key.clone()));
    assert_eq!(read("type: abs, account-name: a, bucket: c, path: /p/q"), at("abs://c/p/q"));
    assert_eq!(read("url: \"abs://a@c/p/q\", sas-token: s"), at("abs://a@c/p/q"));
    assert_eq!(read("type: gs, bucket: b, path: p/q, endpoint: \"http://127.0.0.1:1\""), at("gs://b/p/q"));
    assert!(read("type: abs, bucket: c").unwrap_err().contains("there is no account"));
    assert!(read("type: gs, path: p").unwrap_err().contains("needs a bucket"));
    assert!(read("type: nats, bucket: b").unwrap_err().contains("s3, gs, abs and file"));
}

#[test]
fn what_no_replicator_can_is_refused_in_the_words_of_either_configuration() {
    let ours = |words: &str| {
        let config = Config::parse(&format!("{{store: /s, {words}, databases: [{{path: /a.db}}]}}")).unwrap();
        config.settings().map_err(|error| error.to_string())
    };
    let theirs = |words: &str| {
        let text = format!("{{{words}, dbs: [{{path: /a.db, replica: {{path: /r}}}}]}}");
        litestream::Litestream::parse(&text).map(|read| read.settings).map_err(|error| error.to_string())
    };
    let many = |level: &str| [level; 9].join(", ");
    for (refused, expected) in [
        (ours("interval-millis: 24"), "interval-millis: must be 25 ms or more"),
        (theirs("sync-interval: 24ms"), "sync-interval: must be 25 ms or more"),
        (ours("levels-millis: [1, 0]"), "levels-millis: must be more than 0"),
        (theirs("levels: [{interval: 1s}, {interval: 0s}]"), "levels.interval: must be more than 0"),
        (ours(&format!("levels-millis: [{}]", many("1"))), "levels-millis: names more than 8 levels"),
        (theirs(&format!("levels: [{}]", many("{interval: 1s}"))), "levels: names more than 8 levels"),
    ] {
        assert_eq!(refused.map(drop).unwrap_err(), expected);
    }
    // Who wants no more snapshots says so by a time that does not come, in either.
    let never = ours(&format!("snapshot-interval-seconds: {}", u64::MAX)).unwrap().snapshot_interval;
    assert_eq!(never, Duration::from_secs(u64::MAX));
    assert!(theirs(&format!("snapshot: {{interval: {}ms}}", u64::MAX)).is_ok());
    assert!(ours("interval-millis: 25").is_ok() && theirs("sync-interval: 25ms").is_ok());
}

#[test]
fn a_place_in_a_bucket_is_written_in_one_way_and_no_place_is_no_folder() {
    let (access_key_id, secret_access_key) = (Some("a".into()), Some("s".into()));
    let options = S3Options { access_key_id, secret_access_key, ..S3Options::default() };
    let open = |url: &str| Location::open(url, &options);
    for url in ["s3://b/./p", "s3://b/p/.", "s3://b/p/../q", "s3://b/..", "s3://b/p//q", "gs://b/./p", "abs://a@b/p/.."]
    {
        let refusal = open(url).map(drop).unwrap_err().to_string();
        assert!(refusal.contains(&format!("{url}: no part of a place in a bucket may be empty")), "{refusal}");
    }
    let refusal = open("s3://b/p\u{7}").map(drop).unwrap_err().to_string();
    assert!(refusal.contains("control characters") && !refusal.contains('\u{7}'), "{refusal}");
    // What was written there before is read.
    assert!(open("s3://b/a\tb.db").is_ok());
    for url in
        ["s3://b", "s3://b/", "s3://b/p/", "s3://b/.p/a..b/...", "s3://b/p?endpoint=http://s", "file:///a/./b//c", "./"]
    {
        assert!(open(url).is_ok(), "{url}");
    }
    // As Litestream reads it.
    let place = |url: &str| open(url).unwrap().place("").to_string();
    assert_eq!(place("s3://b//p/"), place("s3://b/p"));
    for url in [
        "s3://KEY:SECRET@b/p",
        "s3://SECRET@b",
        "s3://b/p?endpoint=http://u:SECRET@h",
        "s3://b/./p?endpoint=http://u:SECRET@h",
        "s3://b?x=SECRET&y",
    ] {
        let refusal = open(url).map(drop).unwrap_err().to_string();
        assert!(!refusal.contains("SECRET"), "{refusal}");
    }
    let refusal = open("").map(drop).unwrap_err().to_string();
    assert!(refusal.starts_with("store: is empty"), "{refusal}");
    let refusal = Config::parse("{store: '', databases: [{path: /a.db}]}").map(|config| open(&config.store).is_err());
    assert!(refusal.unwrap());
}

#[test]
fn a_name_that_no_place_could_be_written_with_is_refused_with_what_to_do() {
    let (access_key_id, secret_access_key) = (Some("a".into()), Some("s".into()));
    let options = S3Options { access_key_id, secret_access_key, ..S3Options::default() };
    let folder = tempfile::tempdir().unwrap();
    for file in ["w?.db", "x.db"] {
        std::fs::write(folder.path().join(file), "").unwrap();
    }
    let found = |store: &str, databases: &str| {
        let text =
            format!("{{store: '{store}', databases: [{databases}]}}").replace("HERE", folder.path().to_str().unwrap());
        Config::parse(&text).unwrap().databases(&Location::open(store, &options).unwrap(), &mut Places::default())
    };
    let refusal = |store: &str, databases: &str| found(store, databases).map(drop).unwrap_err().to_string();
    for name in ["./app", "app/.", ".", "..", "a//b", "/app"] {
        let said = refusal("s3://b/p", &format!("{{path: HERE/x.db, name: '{name}'}}"));
        assert!(said.contains(&format!("\"{name}\" cannot be a folder in the store")), "{said}");
    }
    for name in ["a\\tb", "a\\nb", "a\\rb", "bell\\a", "\\u0085"] {
        let said = refusal("s3://b/p", &format!("{{path: HERE/x.db, name: \"{name}\"}}"));
        assert!(said.contains("control characters") && said.contains("as in name: app"), "{said}");
        assert!(!said.contains(char::is_control), "it is one line: {said:?}");
        assert!(found("file:///backup", &format!("{{path: HERE/x.db, name: \"{name}\"}}")).is_ok(), "{name}");
    }
    let said = refusal("s3://b/p", "{path: 'HERE/w?.db'}");
    assert!(said.starts_with("databases.name: ") && said.contains("as in name: app"), "{said}");
    let of_pattern = found("s3://b/p", "{path: 'HERE/*.db'}").unwrap();
    assert!(of_pattern.databases.len() == 1 && of_pattern.refused[0].1.contains("as in name: app"));
    assert_eq!(found("s3://b/p", "{path: 'HERE/w?.db', name: w}").unwrap().databases.len(), 1);
    assert_eq!(
        found("file:///backup", "{path: 'HERE/*.db'}").unwrap().databases.len(),
        2,
        "of a folder any can be written"
    );
}

/// The same as [`found::matches`], as it is told.
fn matches_plainly(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices().map(|(at, _)| at).chain([tail.len()]).any(|at| matches_plainly(rest, &tail[at..]))
        }),
    }
}

proptest::proptest! {
    #[test]
    fn a_pattern_means_what_it_says(pattern in "[ab*ü]{0,8}", name in "[abü]{0,10}") {
        proptest::prop_assert_eq!(found::matches(&pattern, &name), matches_plainly(&pattern, &name));
    }
}

#[test]
fn a_name_that_nearly_fits_many_stars_is_told_at_once() {
    let pattern = "*-*-*-*-*-*-*-*-*-*.db";
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(found::matches(pattern, &"-".repeat(250))));
    assert_eq!(told.recv_timeout(std::time::Duration::from_secs(60)), Ok(false));
    assert!(found::matches(pattern, &("-".repeat(250) + ".db")));
}
