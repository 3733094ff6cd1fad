//! redis.conf: any text is taken, or refused in one line; and what CONFIG REWRITE makes of a text that is taken says the same.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::type_complexity, clippy::unwrap_used)]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use rsedis::settings::{Extent, Outside, PARAMETERS, Settings, Start, read_command_line, rewrite};
use rsedis::{acl, command};

fn read(text: &[u8]) -> Result<Settings, String> {
    let files = |_: &Path| Ok(text.to_vec());
    let list = |_: &Path| Ok(vec!["file".to_owned()]);
    let outside = Outside { read: &files, list: &list, check_user: acl::check_user, is_command: command::is_own_name };
    match read_command_line(&["file".to_owned()], "", outside)? {
        Start::Serve(settings) => Ok(*settings),
        Start::Print(text) => panic!("nobody asked for {text}"),
    }
}

fuzz_target!(|text: &str| match read(text.as_bytes()) {
    Err(mistake) => assert!(!mistake.contains('\n'), "{mistake}"),
    Ok(settings) => {
        let rewritten = rewrite(&settings, &[], text.as_bytes(), Extent::Changed);
        let shown = String::from_utf8_lossy(&rewritten);
        let again = read(&rewritten).unwrap_or_else(|mistake| panic!("{mistake}\n{shown}"));
        for index in 0..PARAMETERS.len() {
            assert_eq!(again.value(index), settings.value(index), "{shown}");
        }
    }
});
