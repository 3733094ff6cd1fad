//! What a directory says of a member, and what others do.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A number, and whether there was a log: `7`, `7 log`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Number(u64, bool);

impl Identity for Number {
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let number = text.trim_end_matches(" log");
        Ok(Self(number.parse().map_err(|_| format!("{number:?} is no number"))?, number != text))
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        Ok(format!("{}{}", self.0, if self.1 { " log" } else { "" }).into())
    }

    fn has_log(&self) -> bool {
        self.1
    }

    fn set_has_log(&mut self) {
        self.1 = true;
    }
}

fn place(root: &Path) -> Place {
    let folder = root.join("data");
    Place { log: folder.join("wal"), folder }
}

fn make_log(place: &Place) {
    fs::create_dir_all(&place.log).unwrap();
    fs::write(place.log.join("00000000000000000001.wal"), "").unwrap();
}

fn standing(place: &Place) -> Result<Standing<Number>, IdentityError> {
    place.standing(place.read()?)
}

/// Goes on, and with what.
fn origin(place: &Place) -> Origin {
    let Ok(Standing::Member(known)) = standing(place) else { panic!("it does not go on") };
    known.origin(Origin::Join)
}

#[test]
fn a_member_goes_on_with_what_it_had_or_not_at_all() {
    let root = tempfile::tempdir().unwrap();
    let place = place(root.path());
    place.make().unwrap();
    assert!(matches!(standing(&place), Ok(Standing::New(None))));
    let known = Known::begin(&place, Number(7, false)).unwrap();
    assert_eq!(known.origin(Origin::Join), Origin::Join);
    // Ended before it had a log, and before there was something in it.
    assert!(matches!(standing(&place), Ok(Standing::New(Some(Number(7, false))))));
    make_log(&place);
    assert_eq!(origin(&place), Origin::Join);
    known.begun().write().unwrap();
    assert_eq!((known.identity(), origin(&place)), (Number(7, true), Origin::GoOn));

    fs::remove_dir_all(&place.log).unwrap();
    for _ in 0..2 {
        let refused = standing(&place).map(drop).unwrap_err();
        assert!(matches!(&refused, IdentityError::LogLost(log) if *log == place.log), "{refused}");
    }
    make_log(&place);
    fs::remove_file(place.folder.join(FILE)).unwrap();
    assert!(matches!(standing(&place), Ok(Standing::Unnamed)));
}

#[test]
fn what_was_changed_is_read_again_and_what_somebody_else_changed_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let place = place(root.path());
    assert!(place.read::<Number>().unwrap().is_none(), "there is no directory, and none is made");
    assert!(!place.folder.exists());
    place.make().unwrap();
    let known = Known::begin(&place, Number(7, false)).unwrap();
    known.clone().change(|number| number.0 = 8).unwrap();
    assert_eq!((known.identity(), place.read().unwrap()), (Number(8, false), Some(Number(8, false))));
    fs::write(place.folder.join(FILE), "x").unwrap();
    let refused = place.read::<Number>().unwrap_err().to_string();
    assert!(refused.ends_with("data/identity.json: \"x\" is no number"), "{refused}");
    // What cannot be written down is not so.
    fs::remove_dir_all(&place.folder).unwrap();
    assert!(matches!(known.change(|number| number.0 = 9), Err(IdentityError::File(..))));
    assert_eq!(known.identity(), Number(8, false));
    fs::write(&place.folder, "").unwrap();
    for refused in [place.make(), place.read::<Number>().map(drop)] {
        assert!(matches!(refused, Err(IdentityError::NoDirectory(path)) if path == place.folder));
    }
}

#[test]
fn one_that_has_nothing_begins_unless_somebody_knows_that_it_had_something() {
    let asked = |said: &[Option<Said>]| {
        let others: Vec<_> = said.iter().cloned().enumerate().collect();
        who_knows(&others, |(_, said)| said.clone()).map(|who| who.map(|(at, _)| *at))
    };
    let (has, nothing, cannot) = (Said::HasAcknowledged, Said::Nothing, Said::CannotTell("damaged".into()));
    assert_eq!(asked(&[]), Ok(None));
    assert_eq!(asked(&[None, None]), Ok(None), "nobody is there, or all begin");
    assert_eq!(asked(&[None, Some(nothing.clone())]), Ok(None));
    assert_eq!(asked(&[Some(nothing.clone()), Some(cannot.clone()), Some(has.clone())]), Ok(Some(2)));
    assert_eq!(asked(&[Some(cannot.clone()), None]), Err("damaged".into()));
    assert_eq!(asked(&[Some(cannot), Some(nothing)]), Ok(None));
}

#[test]
fn one_that_joins_asks_until_it_is_known() {
    let long = Duration::from_secs(60);
    let rounds = AtomicUsize::new(0);
    let later = |member: &u8| match (member, rounds.fetch_add(1, Ordering::Relaxed)) {
        (1, _) | (_, ..4) => Welcome::NotYet(format!("{member} does not know it")),
        (member, _) => Welcome::Known(*member),
    };
    assert_eq!(join(&[1, 2], long, later), Ok(2));
    let not_yet = |member: &u8| Welcome::<()>::NotYet(member.to_string());
    assert_eq!(join(&[1, 2], Duration::ZERO, not_yet), Err("2".into()));
    assert_eq!(join(&[], Duration::ZERO, not_yet), Err("no member was named".into()));
    // Who was removed stays so, whatever those say that have not heard of it.
    let removed = |member: &u8| if *member == 1 { Welcome::Known(()) } else { Welcome::Never("removed".into()) };
    assert_eq!(join(&[1, 2], long, removed), Err("removed".into()));
}
