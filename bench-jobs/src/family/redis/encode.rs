//! Writes the measured commands: everything that does not change from one to the next is encoded once.

use storebench_crds::workload::redis::RedisCommand;

use crate::content::keys::KeyNames;
use crate::content::values::Values;
use crate::family::redis::plan::{MSET_KEYS, Plan};
use crate::family::redis::resp::write_command;

/// The parts of the commands of one workload. Each pattern is `head`, a key, `middle`, a value and `\r\n`, or a prefix
/// of that; a head and the key's own prefix are one template, so that both are one copy.
#[derive(Debug)]
pub struct Encoder {
    /// A command that never changes.
    fixed: Vec<u8>,
    /// Up to and including the key's name.
    with_key: KeyNames,
    /// The same for the reads of a mix.
    read_with_key: KeyNames,
    /// Between the key and the value.
    middle: Vec<u8>,
}

impl Encoder {
    /// For a workload. `structure` is the key that the command touches, where that is one.
    pub fn new(plan: &Plan, structure: Option<&str>) -> Self {
        let structure = structure.unwrap_or_default().as_bytes();
        let key = plan.names.name(0);
        let key_bytes = key.len();
        // The key's prefix is what precedes its digits.
        let prefix = String::from_utf8_lossy(&key).trim_end_matches('0').to_owned();
        let value_bytes = plan.values.value_bytes();
        let command = plan.parameters.command;
        let name = plan.command_name().as_bytes();
        let with_key = |arguments: usize, before: &[&[u8]]| {
            let mut head = Vec::new();
            if arguments > 0 {
                head.extend_from_slice(format!("*{arguments}\r\n").as_bytes());
            }
            for argument in before {
                head.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
                head.extend_from_slice(argument);
                head.extend_from_slice(b"\r\n");
            }
            head.extend_from_slice(format!("${key_bytes}\r\n{prefix}").as_bytes());
            let length = head.len() + key_bytes - prefix.len();
            KeyNames::new(&String::from_utf8_lossy(&head), length)
        };
        let fixed = |arguments: &[&[u8]]| {
            let mut text = Vec::new();
            write_command(arguments, &mut text);
            text
        };
        let none = || KeyNames::new("", 0);
        let lrange_last = plan.lrange_count().saturating_sub(1).to_string();
        let (fixed, with_key, read_with_key) = match command {
            RedisCommand::PingInline => (b"PING\r\n".to_vec(), none(), none()),
            RedisCommand::Ping => (fixed(&[b"PING"]), none(), none()),
            RedisCommand::Set | RedisCommand::Get | RedisCommand::Mixed => {
                (Vec::new(), with_key(3, &[b"SET"]), with_key(2, &[b"GET"]))
            }
            RedisCommand::Incr => (Vec::new(), with_key(2, &[name]), none()),
            RedisCommand::Mset => {
                let head = format!("*{}\r\n$4\r\nMSET\r\n", 1 + 2 * MSET_KEYS);
                (head.into_bytes(), with_key(0, &[]), none())
            }
            RedisCommand::Sadd => (Vec::new(), with_key(3, &[name, structure]), none()),
            RedisCommand::Hset => (Vec::new(), with_key(4, &[name, structure]), none()),
            // ZADD: the score comes before the element.
            RedisCommand::Zadd => (fixed_head(4, &[name, structure]), with_key(0, &[]), none()),
            RedisCommand::Lpop | RedisCommand::Rpop | RedisCommand::Spop | RedisCommand::Zpopmin => {
                (fixed(&[name, structure]), none(), none())
            }
            RedisCommand::Lpush | RedisCommand::Rpush => (fixed_head(3, &[name, structure]), none(), none()),
            RedisCommand::Lrange100 | RedisCommand::Lrange300 | RedisCommand::Lrange500 | RedisCommand::Lrange600 => {
                (fixed(&[name, structure, b"0", lrange_last.as_bytes()]), none(), none())
            }
            RedisCommand::Xadd => (fixed_head(5, &[name, structure, b"*", b"myfield"]), none(), none()),
        };
        let middle = match command {
            RedisCommand::Lpush | RedisCommand::Rpush | RedisCommand::Xadd => format!("${value_bytes}\r\n"),
            _ => format!("\r\n${value_bytes}\r\n"),
        };
        Self { fixed, with_key, read_with_key, middle: middle.into_bytes() }
    }

    /// The command that never changes: PING, pops, LRANGE.
    #[inline]
    pub fn fixed(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fixed);
    }

    /// `GET key`.
    #[inline]
    pub fn get(&self, key: u32, out: &mut Vec<u8>) {
        self.read_with_key.write(key, out);
        out.extend_from_slice(b"\r\n");
    }

    /// `INCR key` and `SADD set element`: the key is last.
    #[inline]
    pub fn key_last(&self, key: u32, out: &mut Vec<u8>) {
        self.with_key.write(key, out);
        out.extend_from_slice(b"\r\n");
    }

    /// `SET key value`, `HSET hash element value`, and one pair of an MSET.
    #[inline]
    pub fn key_and_value(&self, key: u32, version: u32, values: &Values, out: &mut Vec<u8>) {
        self.with_key.write(key, out);
        out.extend_from_slice(&self.middle);
        values.write(key, version, out);
        out.extend_from_slice(b"\r\n");
    }

    /// `LPUSH list value`, `XADD stream * myfield value`.
    #[inline]
    pub fn value_last(&self, key: u32, version: u32, values: &Values, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fixed);
        out.extend_from_slice(&self.middle);
        values.write(key, version, out);
        out.extend_from_slice(b"\r\n");
    }

    /// `ZADD zset score element`.
    #[inline]
    pub fn score_and_key(&self, key: u32, score: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fixed);
        let (digits, from) = decimal(score);
        // A 32-bit number has at most ten digits; a length must not have a leading zero.
        match digits.len() - from {
            10 => out.extend_from_slice(b"$10\r\n"),
            length => out.extend_from_slice(&[b'$', b'0' + length as u8, b'\r', b'\n']),
        }
        out.extend_from_slice(&digits[from..]);
        out.extend_from_slice(b"\r\n");
        self.with_key.write(key, out);
        out.extend_from_slice(b"\r\n");
    }
}

/// The beginning of a command of `arguments` arguments.
fn fixed_head(arguments: usize, first: &[&[u8]]) -> Vec<u8> {
    let mut head = Vec::new();
    write_command(first, &mut head);
    let given = format!("*{}\r\n", first.len());
    let mut text = format!("*{arguments}\r\n").into_bytes();
    text.extend_from_slice(&head[given.len()..]);
    text
}

/// A number's digits: those from the index on.
#[inline]
fn decimal(number: u32) -> ([u8; 10], usize) {
    let mut digits = [b'0'; 10];
    let mut from = 10;
    let mut rest = number;
    loop {
        from -= 1;
        digits[from] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return (digits, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use storebench_crds::workload::redis::RedisWorkload;

    use crate::load::Context;
    use crate::load::share::Share;

    fn plan(command: RedisCommand) -> Plan {
        let context = Context {
            workload: "w".into(),
            seed: 7,
            arm_seed: 7,
            share: Share::WHOLE,
            endpoints: vec!["127.0.0.1:1".into()],
            connections: 1,
            clients: 1,
            threads: 1,
            total: Some(1),
            duration: None,
            warm_up: Default::default(),
            rate: None,
            arrivals: Default::default(),
            highest_rate: None,
            timeout: Default::default(),
            synced_writes_percent: 0,
            in_flight_max: 1,
            fault: None,
            may_lose_writes: false,
            restarts_members: false,
            outside: None,
            namespace: None,
            store_settings: Default::default(),
        };
        let parameters = serde_json::json!({ "command": command, "valueBytes": 10 });
        Plan::new(&context, &serde_json::from_value::<RedisWorkload>(parameters).unwrap())
    }

    fn encoded(command: RedisCommand, write: impl Fn(&Encoder, &Plan, &mut Vec<u8>)) -> Vec<u8> {
        let plan = plan(command);
        let mut out = Vec::new();
        write(&Encoder::new(&plan, plan.structure()), &plan, &mut out);
        out
    }

    fn as_array(arguments: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        write_command(arguments, &mut out);
        out
    }

    fn value(command: RedisCommand, key: u32, version: u32) -> Vec<u8> {
        let mut out = Vec::new();
        plan(command).values.write(key, version, &mut out);
        out
    }

    proptest! {
        #[test]
        fn commands_are_what_the_plain_encoder_would_write(key: u32, version: u32) {
            use RedisCommand::{Get, Hset, Incr, Lpush, Sadd, Set, Xadd, Zadd};
            let digits = format!("{key:012}");
            let (name, element) = (format!("key:{digits}"), format!("element:{digits}"));
            let (name, element, counter) = (name.as_bytes(), element.as_bytes(), format!("counter:{digits}"));
            let (score, bytes) = (version.to_string(), value(Set, key, version));
            let cases = [
                (encoded(Set, |e, p, o| e.key_and_value(key, version, &p.values, o)), as_array(&[b"SET", name, &bytes])),
                (encoded(Get, |e, _, o| e.get(key, o)), as_array(&[b"GET", name])),
                (encoded(Incr, |e, _, o| e.key_last(key, o)), as_array(&[b"INCR", counter.as_bytes()])),
                (encoded(Sadd, |e, _, o| e.key_last(key, o)), as_array(&[b"SADD", b"myset", element])),
                (
                    encoded(Hset, |e, p, o| e.key_and_value(key, version, &p.values, o)),
                    as_array(&[b"HSET", b"myhash", element, &bytes]),
                ),
                (
                    encoded(Zadd, |e, _, o| e.score_and_key(key, version, o)),
                    as_array(&[b"ZADD", b"myzset", score.as_bytes(), element]),
                ),
                (
                    encoded(Lpush, |e, p, o| e.value_last(key, version, &p.values, o)),
                    as_array(&[b"LPUSH", b"mylist", &bytes]),
                ),
                (
                    encoded(Xadd, |e, p, o| e.value_last(key, version, &p.values, o)),
                    as_array(&[b"XADD", b"mystream", b"*", b"myfield", &bytes]),
                ),
            ];
            for (found, expected) in cases {
                prop_assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string());
            }
        }
    }

    #[test]
    fn fixed_commands_are_what_the_plain_encoder_would_write() {
        let fixed = |command| encoded(command, |encoder, _, out| encoder.fixed(out));
        assert_eq!(fixed(RedisCommand::PingInline), b"PING\r\n");
        assert_eq!(fixed(RedisCommand::Ping), as_array(&[b"PING"]));
        assert_eq!(fixed(RedisCommand::Lpop), as_array(&[b"LPOP", b"mylist"]));
        assert_eq!(fixed(RedisCommand::Spop), as_array(&[b"SPOP", b"myset"]));
        assert_eq!(fixed(RedisCommand::Zpopmin), as_array(&[b"ZPOPMIN", b"myzset"]));
        assert_eq!(fixed(RedisCommand::Lrange300), as_array(&[b"LRANGE", b"mylist", b"0", b"299"]));
        let mset = encoded(RedisCommand::Mset, |encoder, plan, out| {
            encoder.fixed(out);
            (0..MSET_KEYS).for_each(|key| encoder.key_and_value(key, 1, &plan.values, out));
        });
        let pairs: Vec<Vec<u8>> = (0..MSET_KEYS)
            .flat_map(|key| [format!("key:{key:012}").into_bytes(), value(RedisCommand::Mset, key, 1)])
            .collect();
        let arguments: Vec<&[u8]> = [b"MSET".as_slice()].into_iter().chain(pairs.iter().map(Vec::as_slice)).collect();
        assert_eq!(mset, as_array(&arguments));
    }
}
