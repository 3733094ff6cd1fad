//! Keyspace events: what happened to which key, for those who subscribe to `__keyspace@N__:KEY` and `__keyevent@N__:EVENT`.
//!
//! Most commands have one event, which follows from their name; the others say theirs themselves.

/// Classes of events, as `notify-keyspace-events` names them.
pub type Classes = u32;

macro_rules! classes {
    ($($(#[$attribute:meta])* $constant:ident $letter:literal $bit:literal;)*) => {
        $($(#[$attribute])* pub const $constant: Classes = 1 << $bit;)*
        /// In the order in which CONFIG GET shows them.
        const LETTERS: &[(Classes, char)] = &[$(($constant, $letter)),*];
    };
}
classes! {
    /// DEL, EXPIRE, RENAME and so on.
    GENERIC 'g' 0;
    /// Strings.
    STRING '$' 1;
    /// Lists.
    LIST 'l' 2;
    /// Sets.
    SET 's' 3;
    /// Hashes.
    HASH 'h' 4;
    /// Sorted sets.
    ZSET 'z' 5;
    /// Keys that expired.
    EXPIRED 'x' 6;
    /// Keys that were evicted.
    EVICTED 'e' 7;
    /// Streams.
    STREAM 't' 8;
    /// Of modules.
    MODULE 'd' 9;
    /// Keys that are new.
    NEW 'n' 10;
    /// Messages of keys.
    KEYSPACE 'K' 11;
    /// Messages of events.
    KEYEVENT 'E' 12;
    /// Reads of keys that are not there.
    MISS 'm' 13;
}

/// What `A` stands for.
const ALL: Classes = GENERIC | STRING | LIST | SET | HASH | ZSET | EXPIRED | EVICTED | STREAM | MODULE;

/// Classes from a setting's text; nothing if a letter is unknown.
pub fn parse(text: &str) -> Option<Classes> {
    text.chars().try_fold(0, |all, letter| match letter {
        'A' => Some(all | ALL),
        letter => LETTERS.iter().find(|(_, known)| *known == letter).map(|(class, _)| all | class),
    })
}

/// The text of classes, as Redis shows it: beside all others not that there are new keys, too.
pub fn shown(text: &str) -> String {
    match text.strip_prefix('A') {
        Some(_) => text.replace('n', ""),
        None => text.to_owned(),
    }
}

/// The text that means these classes, as Redis orders it.
pub fn text(classes: Classes) -> String {
    let mut text = String::new();
    let has_all = classes & ALL == ALL;
    if has_all {
        text.push('A');
    }
    let single = LETTERS.iter().filter(|(class, _)| classes & class != 0 && !(has_all && ALL & class != 0));
    text.extend(single.map(|(_, letter)| letter));
    text
}

/// What a command does to a key that it changes; nothing if it says so itself.
pub fn of(command: &str) -> Option<(Classes, &'static str)> {
    Some(match command {
        "append" => (STRING, "append"),
        "decr" | "incr" | "decrby" | "incrby" => (STRING, "incrby"),
        "incrbyfloat" => (STRING, "incrbyfloat"),
        "set" | "setnx" | "mset" | "msetnx" | "getset" | "setex" | "psetex" => (STRING, "set"),
        "setrange" => (STRING, "setrange"),
        "setbit" | "bitfield" => (STRING, "setbit"),
        "bitop" => (STRING, "set"),
        "pfadd" | "pfmerge" => (STRING, "pfadd"),
        "getdel" | "del" | "unlink" => (GENERIC, "del"),
        "expire" | "pexpire" | "expireat" | "pexpireat" => (GENERIC, "expire"),
        "persist" => (GENERIC, "persist"),
        "restore" | "restore-asking" => (GENERIC, "restore"),
        "copy" => (GENERIC, "copy_to"),
        "lpush" | "lpushx" => (LIST, "lpush"),
        "rpush" | "rpushx" => (LIST, "rpush"),
        "lpop" => (LIST, "lpop"),
        "rpop" => (LIST, "rpop"),
        "linsert" => (LIST, "linsert"),
        "lset" => (LIST, "lset"),
        "lrem" => (LIST, "lrem"),
        "ltrim" => (LIST, "ltrim"),
        "sadd" => (SET, "sadd"),
        "srem" => (SET, "srem"),
        "spop" => (SET, "spop"),
        "sinterstore" => (SET, "sinterstore"),
        "sunionstore" => (SET, "sunionstore"),
        "sdiffstore" => (SET, "sdiffstore"),
        "hset" | "hmset" | "hsetnx" => (HASH, "hset"),
        "hdel" => (HASH, "hdel"),
        "hincrby" => (HASH, "hincrby"),
        "hincrbyfloat" => (HASH, "hincrbyfloat"),
        "zrem" => (ZSET, "zrem"),
        "zremrangebyscore" => (ZSET, "zremrangebyscore"),
        "zremrangebyrank" => (ZSET, "zremrangebyrank"),
        "zremrangebylex" => (ZSET, "zremrangebylex"),
        "zpopmin" | "bzpopmin" => (ZSET, "zpopmin"),
        "zpopmax" | "bzpopmax" => (ZSET, "zpopmax"),
        "zunionstore" => (ZSET, "zunionstore"),
        "zinterstore" => (ZSET, "zinterstore"),
        "zdiffstore" => (ZSET, "zdiffstore"),
        "zrangestore" => (ZSET, "zrangestore"),
        "geosearchstore" => (ZSET, "geosearchstore"),
        "georadius" | "georadiusbymember" => (ZSET, "georadiusstore"),
        "xadd" => (STREAM, "xadd"),
        "xdel" => (STREAM, "xdel"),
        "xtrim" => (STREAM, "xtrim"),
        "sort" => (LIST, "sortstore"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_shown_as_redis_does() {
        for (text, expected) in
            [("KEA", "AKE"), ("Elg", "glE"), ("", ""), ("EAn", "AE"), ("KEnm", "nKEm"), ("g$lshzxetdK", "AK")]
        {
            assert_eq!(parse(text).map(|classes| shown(&super::text(classes))).as_deref(), Some(expected), "{text}");
        }
        // What is set keeps all that was asked for.
        assert_eq!(parse("KEAnm").map(super::text).as_deref().and_then(parse), parse("KEAnm"));
        assert_eq!(parse("q"), None);
    }
}
