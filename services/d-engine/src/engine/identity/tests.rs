//! Whose a directory is, who is where, and who joins whom.

use std::os::unix::fs::PermissionsExt as _;

use replog::runtime::Origin;

use super::*;

const FILE: &str = "identity.json";

fn options(directory: &Path) -> Options {
    let address = |port| Address { client: format!("a:{port}"), peer: format!("b:{port}") };
    let members = BTreeMap::from([(1, address(1)), (2, address(2))]);
    Options { members, ..Options::alone(directory.join("data")) }
}

/// Of a founder.
fn check(
    options: &Options,
    serial: Option<u64>,
    ask: impl Fn(&str) -> io::Result<Vec<u8>> + Sync,
) -> Result<Known<Identity>, IdentityError> {
    super::check(options, &options.founded(None), serial, ask)
}

fn nobody(_: &str) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::ConnectionRefused.into())
}

fn make_log(options: &Options) {
    fs::create_dir_all(options.directory.join("wal")).unwrap();
    fs::write(options.directory.join("wal/00000000000000000001.wal"), "").unwrap();
}

/// As a member says of itself that has something in its log.
fn has_log(known: &Known<Identity>) {
    known.change(identity::Identity::set_has_log).unwrap();
}

#[test]
fn a_new_member_begins_and_its_directory_is_its_users_alone() {
    let root = harness::folder();
    let options = options(root.path());
    // A start that was killed before it had a log, too.
    for _ in 0..2 {
        check(&options, Some(0), nobody).unwrap();
    }
    let mode = fs::metadata(&options.directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_file_as_directory_is_refused_by_its_name() {
    let root = harness::folder();
    let options = options(root.path());
    fs::write(&options.directory, "").unwrap();
    let expected = format!("{} is a file: name a directory", options.directory.display());
    for refused in [check(&options, Some(0), nobody).map(drop), restored(&options.directory).map(drop)] {
        let error = refused.unwrap_err().to_string();
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn a_member_that_lost_its_log_is_refused() {
    let root = harness::folder();
    let options = options(root.path());
    has_log(&check(&options, Some(0), nobody).unwrap());
    assert!(matches!(check(&options, Some(0), nobody), Err(IdentityError::LogLost(_))));
    make_log(&options);
    check(&options, Some(0), nobody).unwrap();
    fs::remove_file(options.directory.join(FILE)).unwrap();
    assert!(matches!(check(&options, Some(0), nobody), Err(IdentityError::Unnamed(_))));
}

#[test]
fn a_founder_asks_on_until_there_is_something_in_its_log_and_who_joins_does_not() {
    let root = harness::folder();
    let options = options(root.path());
    let group = options.founded(None);
    let known = check(&options, Some(0), nobody).unwrap();
    assert!(founding(1, &group, &known).is_some());
    assert!(founding(1, &Group { is_joined: true, ..group.clone() }, &known).is_none());
    has_log(&known);
    assert!(founding(1, &group, &known).is_none());
}

#[test]
fn a_state_whose_log_is_gone_is_refused_and_stays() {
    let root = harness::folder();
    let options = options(root.path());
    let state = options.directory.join(STATE);
    fs::create_dir_all(&state).unwrap();
    check(&options, Some(0), nobody).map(drop).unwrap();
    fs::remove_file(options.directory.join(FILE)).unwrap();
    fs::write(state.join("0.jnl"), "rows").unwrap();
    for _ in 0..2 {
        let refused = check(&options, Some(0), nobody).map(drop).unwrap_err();
        assert!(
            matches!(&refused, IdentityError::StateAlone(path) if *path == state.display().to_string()),
            "{refused}"
        );
    }
    fs::remove_dir_all(&state).unwrap();
    check(&options, Some(0), nobody).unwrap();
    // A start that was killed before it had a log: what it left is its own.
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("0.jnl"), "").unwrap();
    check(&options, Some(0), nobody).unwrap();
}

#[test]
fn a_member_that_lost_everything_is_refused_by_those_who_know() {
    let root = harness::folder();
    let options = options(root.path());
    let says = |seen: &'static str| {
        move |address: &str| {
            assert_eq!(address, "b:2");
            Ok(format!("{{\"seen\":[{seen}]}}").into_bytes())
        }
    };
    check(&options, Some(0), says("2")).unwrap();
    assert!(matches!(check(&options, Some(0), says("2,1")), Err(IdentityError::Emptied(_, 1, _))));
}

#[test]
fn a_member_that_lost_everything_does_not_begin_anew_because_others_cannot_read_what_they_know() {
    let root = harness::folder();
    let mut options = options(root.path());
    for said in ["", "{"] {
        let checked = check(&options, Some(0), |_| Ok(said.into()));
        assert!(matches!(checked, Err(IdentityError::Untold(_, why)) if why.contains("b:2")));
    }
    // Another one is asked.
    let address = Address { client: "a:3".into(), peer: "b:3".into() };
    options.members.insert(3, address);
    let says = |third: &'static str| {
        move |address: &str| Ok(if address == "b:3" { third.as_bytes().to_vec() } else { Vec::new() })
    };
    assert!(
        matches!(check(&options, Some(0), says("{\"seen\":[1]}")), Err(IdentityError::Emptied(_, 1, who)) if who == "b:3")
    );
    // Who belongs to another group cannot know, also where it has seen a member of this number there.
    for of_another in ["{\"seen\":[3],\"group\":\"abc\"}", "{\"seen\":[1],\"group\":\"abc\"}"] {
        let checked = check(&options, Some(0), says(of_another));
        assert!(matches!(checked, Err(IdentityError::Untold(_, why)) if why.contains("b:2")), "{of_another}");
    }
    check(&options, Some(0), says("{\"seen\":[3]}")).unwrap();
}

#[test]
fn who_joins_learns_who_the_members_are_and_remembers() {
    let root = harness::folder();
    let address = |port| Address { client: format!("a:{port}"), peer: format!("b:{port}") };
    let joiner = || Options { id: 4, join: vec!["b:1".into()], ..Options::alone(root.path().join("data")) };
    let members: BTreeMap<u64, Address> = [(1, address(1)), (4, address(4))].into();
    let said = |introduction: Introduction| move |_: &str| Ok(serde_json::to_vec(&introduction).unwrap());
    let introduction = Introduction { group: "abc".into(), serial: Some(77), members, ..Introduction::default() };
    let unknown = Introduction { members: BTreeMap::new(), ..introduction.clone() };
    let removed = Introduction { removed: vec![4], ..introduction.clone() };
    for refused in [unknown, removed] {
        assert!(matches!(join(&joiner(), Duration::ZERO, said(refused)), Err(IdentityError::Join(4, _))));
    }
    assert!(matches!(join(&joiner(), Duration::ZERO, nobody), Err(IdentityError::Join(..))));
    let options = joiner();
    let (group, serial) = join(&options, Duration::ZERO, said(introduction)).unwrap().unwrap();
    assert_eq!((group.number, group.members.len(), serial), (0xabc, 2, Some(77)));
    has_log(&super::check(&options, &group, serial, nobody).unwrap());
    make_log(&options);
    // Nobody needs to be asked again.
    let again = join(&options, Duration::ZERO, nobody).unwrap().unwrap();
    assert_eq!(again, (group, Some(77)));
    super::check(&options, &again.0, None, nobody).unwrap();
    // Whose directory it is is seen before anything is made of what stands there.
    let refused = join(&Options { id: 5, ..joiner() }, Duration::ZERO, nobody).unwrap_err().to_string();
    assert!(refused.contains("is of member 4 of group abc, and this is member 5"), "{refused}");
    let alone = Options { join: Vec::new(), ..joiner() };
    let refused = check(&alone, Some(0), nobody).map(drop).unwrap_err();
    assert!(refused.to_string().contains("start it with --join"), "{refused}");
}

#[test]
fn a_founder_that_is_told_to_join_is_told_that_it_founded() {
    let root = harness::folder();
    let options = options(root.path());
    has_log(&check(&options, Some(0), nobody).unwrap());
    let joins = Options { join: vec!["b:2".into()], ..options };
    let refused = join(&joins, Duration::ZERO, nobody).unwrap_err().to_string();
    assert!(refused.contains("start it without --join"), "{refused}");
}

#[test]
fn which_group_it_is_stays_and_one_of_an_earlier_release_has_no_serial_number() {
    let root = harness::folder();
    let options = options(root.path());
    let known = check(&options, Some(0), nobody).unwrap();
    assert_eq!(known.identity().serial(), Some(0));
    known.change(|identity| identity.is_of(7)).unwrap();
    assert_eq!(check(&options, Some(0), nobody).unwrap().identity().serial(), Some(7));
    let path = options.directory.join(FILE);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"serial\": 7,", "")).unwrap();
    assert_eq!(check(&options, Some(0), nobody).unwrap().identity().serial(), None);
    // Nor has who joins such a group.
    let none: Introduction = serde_json::from_str("{\"seen\":[1],\"group\":\"abc\"}").unwrap();
    assert_eq!(none.serial, None);
}

#[test]
fn a_member_is_where_it_says_so_itself() {
    let there_of = |group: &str, serial, member, own| {
        let said = Introduction { group: group.into(), serial, member, ..Introduction::default() };
        is_at("b:2", ("abc", own), 2, |_| Ok(serde_json::to_vec(&said).unwrap()))
    };
    let there = |group, member| there_of(group, Some(7), member, 7);
    assert_eq!((there("abc", 2), there("abc", 0)), (Ok(()), Ok(())));
    assert_eq!(there("abc", 1), Err("there is member 1".into()));
    assert!(there("abd", 2).unwrap_err().contains("belongs to group \"abd\", not to abc"));
    for (serial, own) in [(None, 7), (Some(0), 7), (Some(7), 0), (None, 0)] {
        assert_eq!(there_of("abc", serial, 2, own), Ok(()), "one of them does not know it yet");
    }
    assert!(there_of("abc", Some(8), 2, 7).unwrap_err().contains("another group with the same name"));
    assert!(is_at("b:2", ("abc", 7), 2, nobody).unwrap_err().contains("refused"));
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    let root = harness::folder();
    let options = options(root.path());
    check(&options, Some(0), nobody).unwrap();
    let others = [Options { id: 2, ..options.clone() }, Options { group: "other".into(), ..options.clone() }];
    for other in others {
        assert!(matches!(check(&other, Some(0), nobody), Err(IdentityError::Other { .. })));
    }
    fs::write(options.directory.join(FILE), "{").unwrap();
    assert!(matches!(check(&options, Some(0), nobody), Err(IdentityError::Content(..))));
}

/// It had a log, and is refused without; and it goes on where it has one.
#[test]
fn what_earlier_releases_wrote_is_read_and_earlier_releases_read_what_this_one_writes() {
    let root = harness::folder();
    let options = options(root.path());
    let group = options.founded(None).written();
    let (path, text) = (options.directory.join(FILE), |serial: &str| {
        format!("{{\n  \"group\": \"{group}\",\n  \"member\": 1,\n{serial}  \"has_log\": true\n}}")
    });
    fs::create_dir_all(&options.directory).unwrap();
    for (serial, number) in [("", None), ("  \"serial\": 7,\n", Some(7))] {
        fs::write(&path, text(serial)).unwrap();
        assert!(matches!(check(&options, Some(0), nobody), Err(IdentityError::LogLost(_))));
        make_log(&options);
        let known = check(&options, Some(0), nobody).unwrap();
        assert_eq!(known.origin(Origin::Join), Origin::GoOn);
        assert_eq!(known.identity().serial(), number);
        has_log(&known);
        assert_eq!(fs::read_to_string(&path).unwrap(), text(serial));
        fs::remove_dir_all(options.directory.join("wal")).unwrap();
    }
}
