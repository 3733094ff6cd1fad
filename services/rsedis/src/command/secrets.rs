//! Arguments that are shown to nobody, neither by MONITOR nor by SLOWLOG.

use super::Command;
use super::options::is;
use crate::protocol::Args;

/// Parameters that are passwords.
const PASSWORDS: [&str; 2] = ["requirepass", "masterauth"];

/// Whether an argument is nobody's business.
pub(super) fn is_secret(command: &Command, args: Args<'_>, place: usize) -> bool {
    let behind = |from: usize, word: &str, count: usize| {
        let found = (from..args.len()).find(|at| is(args.at(*at), word));
        found.is_some_and(|at| (at + 1..=at + count).contains(&place))
    };
    match command.name {
        "auth" => place > 0,
        "acl|setuser" => place > 1,
        "hello" => behind(2, "AUTH", 2),
        "migrate" => behind(6, "AUTH", 1) || behind(6, "AUTH2", 2),
        "config|set" => place > 2 && place % 2 == 1 && PASSWORDS.iter().any(|name| is(args.at(place - 1), name)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::OwnedArgs;

    #[test]
    fn passwords_are_shown_to_nobody() {
        for (line, expected) in [
            ("auth someone secret", "auth * *"),
            ("acl setuser someone >secret", "acl setuser * *"),
            ("hello 3 auth someone secret setname auth", "hello 3 auth * * setname auth"),
            ("migrate host 1 key 0 5 auth secret keys", "migrate host 1 key 0 5 auth * keys"),
            ("migrate host 1 key 0 5 auth2 someone secret", "migrate host 1 key 0 5 auth2 * *"),
            ("config set requirepass secret port 1", "config set requirepass * port 1"),
            ("set requirepass x", "set requirepass x"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let owned = OwnedArgs::new(words.iter().map(|word| word.as_bytes()));
            let command = crate::command::resolve(owned.as_args()).unwrap();
            let shown = |(place, word)| if is_secret(command, owned.as_args(), place) { "*" } else { word };
            assert_eq!(words.iter().copied().enumerate().map(shown).collect::<Vec<_>>().join(" "), expected);
        }
    }
}
