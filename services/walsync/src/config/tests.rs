use super::*;

#[test]
fn a_mistyped_url_is_not_taken_for_a_folder() {
    let open = |url| Location::open(url, &S3Options::default()).map(drop);
    for url in ["s3:/bucket", "s3:bucket", "s3//bucket", "S3://bucket", "gs://bucket", "file:/x", "file://relative/x"] {
        let refusal = open(url).unwrap_err().to_string();
        assert!(refusal.contains(url) && refusal.contains("s3://bucket/prefix"), "{refusal}");
    }
    for folder in ["/folder", "backups", "./s3:/folder", "file:///folder"] {
        assert!(open(folder).is_ok(), "{folder}");
    }
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
