//! The words of templates, and what is put in their place.

use harness::Random;

/// Doubles at their limits, and what is nearly one.
const DOUBLES: &[&str] = &[
    "1.7976931348623157e308",
    "-1.7976931348623157e308",
    "2.2250738585072014e-308",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
    "123456789012345678901234567890",
    "1e17",
    "0.1",
    "0x1p3",
    "infinity",
    "+inf",
    "-Infinity",
    "nan",
    "-nan",
    "1e",
    "--1",
    ".5",
    "5.",
    " 1",
    "1 ",
    "",
];

/// What no double is like. Of these Redis's SORT may remember that something was out of range.
const OUT_OF_RANGE: &[&str] = &["1e400", "-1e400", "1e-400", "4.9e-324", "0x1p2000", "1e5000", "-1e-5000"];

/// Integers at their limits, and what is nearly one. None of them makes a value of many megabytes, or lets a key go while it is asked about.
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "16",
    "9223372036854775807",
    "-9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "4294967296",
    "1099511627776",
    "00",
    "01",
    "+1",
    "-0",
    " 1",
    "1 ",
    "1.0",
    "1e3",
    "0x10",
    "",
];

/// Of these the ones that an idle time may reach on one server before it does on the other.
const MILLISECONDS: &[&str] = &["1", "2", "16"];

/// Words that mean something to some command.
const OPTIONS: &[&str] = &[
    "NX",
    "XX",
    "GT",
    "lt",
    "CH",
    "INCR",
    "LIMIT",
    "COUNT",
    "MATCH",
    "TYPE",
    "GET",
    "ASC",
    "DESC",
    "ALPHA",
    "STORE",
    "WITHSCORES",
    "WITHVALUES",
    "REPLACE",
    "ABSTTL",
    "KEEPTTL",
    "PERSIST",
    "MAXLEN",
    "MINID",
    "NOMKSTREAM",
    "~",
    "=",
    ">",
    "$",
    "-",
    "+",
    "(",
    "[",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "MIN",
    "MAX",
    "WEIGHTS",
    "AGGREGATE",
    "SUM",
    "STREAMS",
    "GROUP",
    "RANK",
    "BYSCORE",
    "BYLEX",
    "REV",
    "BIT",
    "AND",
    "NOT",
    "km",
    "LEN",
    "IDX",
    "u8",
    "i64",
    "OVERFLOW",
    "FAIL",
    "SAMPLES",
    "MKSTREAM",
    "FULL",
    "JUSTID",
    "DB",
];

/// What is neither a number nor a word of Redis's.
const OTHERS: &[&[u8]] = &[b"", b"a", b"\0", b"a\0b", b"\xff\xfe", b"a\r\nb", b" ", b"*x", b"'", b"\"", b"%s", b"a b"];

/// A value as DUMP gives it, made by hand in types that Redis reads and writes no more.
fn payload(random: &mut Random) -> Vec<u8> {
    let text = |text: &str| [[text.len() as u8].as_slice(), text.as_bytes()].concat();
    let count = random.index(5) as u8;
    let (mut bytes, many): (Vec<u8>, u8) = match random.index(8) {
        0 => ([[0].as_slice(), &text("restored")].concat(), 0),
        1 => (vec![0, 0xC0, random.index(256) as u8], 0),
        2 => (vec![0, 0xC1, random.index(256) as u8, random.index(256) as u8], 0),
        kind => (vec![[1, 2, 3, 4, 5][kind - 3], count], count),
    };
    let kind = bytes[0];
    for number in 0..many {
        bytes.extend(text(&if random.index(2) == 0 { format!("{number}") } else { format!("r{number}") }));
        match kind {
            3 => bytes.extend(text(random.pick(&["1", "-2.5", "inf", "1e300"]))),
            4 => bytes.extend(text("value")),
            5 => bytes.extend(random.pick(&[1.0, -2.5, f64::INFINITY, 1e300, f64::MIN_POSITIVE]).to_le_bytes()),
            _ => {}
        }
    }
    bytes.extend(10_u16.to_le_bytes());
    bytes.extend(checksum(&bytes).to_le_bytes());
    if random.index(12) == 0 {
        let at = random.index(bytes.len());
        bytes[at] ^= 1;
    }
    bytes
}

/// Redis's CRC-64.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8)
            .fold(crc ^ u64::from(*byte), |crc: u64, _| crc >> 1 ^ if crc & 1 == 1 { 0x95AC_9329_AC4B_C9B5 } else { 0 })
    })
}

/// An integer at its limits, but for these.
fn pick_but(random: &mut Random, excepted: &[&str]) -> String {
    loop {
        let text = random.pick(INTEGERS);
        if !excepted.contains(&text) {
            return text.to_owned();
        }
    }
}

/// A word of a template, filled in. `K` is a key, `S` `L` `E` `H` `Z` one that mostly has that type, `Y` a sorted set of one score, `Q` a
/// stream; `V` a value, `M` a member or field, `I` an integer, `N` a small count, `F` a number with a fraction, `O` a double at its limits,
/// `OO` one beyond, `G` an integer at its limits, `GI` one that no idle time is near, `GC` one from which may be counted on (README), `W`
/// anything; `T` a time that has passed as milliseconds and is to come as seconds, `TM` one to come in milliseconds; `D` an identifier, `B`
/// a bound of scores, `X` one of members, `P` what RESTORE reads, `C` a channel, `J` a pattern of them.
pub fn fill(random: &mut Random, word: &str) -> Vec<u8> {
    let typed = |random: &mut Random, kind: &str| {
        // Now and then a key of another type.
        let kind =
            if random.index(12) == 0 { random.pick(&["s", "l", "e", "h", "z"]).to_owned() } else { kind.to_owned() };
        format!("{kind}:{}", random.index(4))
    };
    let text = match word {
        "K" => {
            let kind = random.pick(&["s", "l", "e", "h", "z"]);
            typed(random, kind)
        }
        "S" => typed(random, "s"),
        "L" => typed(random, "l"),
        "E" => typed(random, "e"),
        "H" => typed(random, "h"),
        "Z" => typed(random, "z"),
        // All of one score: a range of members has a meaning in no other.
        "Y" => format!("y:{}", random.index(3)),
        "V" => match random.index(8) {
            0 => "x".repeat(random.index(200)),
            1 => "y".repeat(44 + random.index(2)),
            2 => random.pick(&["", "+1", "01", "-0", " 1", "1.5", "inf", "3.0e3"]).to_owned(),
            3 => return (0..random.index(20)).map(|_| random.index(256) as u8).collect(),
            _ => format!("v{}", random.index(12)),
        },
        "M" => match random.index(16) {
            0 => "m".repeat(60 + random.index(10)),
            1 => random.index(10).to_string(),
            _ => format!("m{}", random.index(160)),
        },
        "I" => match random.index(12) {
            0 => random
                .pick(&["9223372036854775807", "-9223372036854775808", "9223372036854775808", "x", "", "1.0"])
                .to_owned(),
            1 => format!("{}", random.index(1 << 40) as i64 - (1 << 39)),
            _ => format!("{}", random.index(24) as i64 - 8),
        },
        "N" => random.index(6).to_string(),
        "F" => match random.index(10) {
            0 => random.pick(&["inf", "-inf", "1e300", "-0", "nan", "x", "3.0", "1e-5"]).to_owned(),
            1..4 => format!("{}", random.index(20) as i64 - 10),
            _ => format!("{}", (random.index(4000) as f64 - 2000.0) / 64.0 / 10.0),
        },
        "Q" => match random.index(16) {
            0 => "s:1".to_owned(),
            _ => format!("q:{}", random.index(3)),
        },
        "D" | "(D" => {
            let open = if word == "(D" { "(" } else { "" };
            match random.index(3) {
                0 => format!("{open}{}", random.index(60)),
                _ => format!("{open}{}-{}", random.index(60), random.index(4)),
            }
        }
        "N-*" => format!("{}-*", random.index(60)),
        "#N" => format!("#{}", random.index(6)),
        "O" => random.pick(DOUBLES).to_owned(),
        "OO" => random.pick(OUT_OF_RANGE).to_owned(),
        "G" => random.pick(INTEGERS).to_owned(),
        "GI" => pick_but(random, MILLISECONDS),
        "GC" => pick_but(random, &["9223372036854775807"]),
        "W" => match random.index(10) {
            0..=2 => return fill(random, "K"),
            3 => return fill(random, "Q"),
            4 | 5 => random.pick(INTEGERS).to_owned(),
            6 => random.pick(DOUBLES).to_owned(),
            7 => random.pick(OPTIONS).to_owned(),
            8 => return random.pick(OTHERS).to_vec(),
            _ => random.index(6).to_string(),
        },
        "P" => return payload(random),
        "C" => format!("ch:{}", random.index(3)),
        "J" => random.pick(&["ch:*", "c?:1", "ch:[12]", ""]).to_owned(),
        "TM" => format!("{}", 33_000_000_000_000_i64 + random.index(10) as i64 * 1000),
        "T" => format!("{}", 33_000_000_000_i64 + random.index(10) as i64 * 1000),
        "B" => match random.index(8) {
            0 => "-inf".to_owned(),
            1 => "+inf".to_owned(),
            2 => "x".to_owned(),
            3 => format!("({}", random.index(20) as i64 - 10),
            _ => format!("{}", random.index(40) as i64 - 20),
        },
        "X" => match random.index(8) {
            0 => "-".to_owned(),
            1 => "+".to_owned(),
            2 => "m".to_owned(),
            3 => format!("(m{}", random.index(160)),
            _ => format!("[m{}", random.index(160)),
        },
        other => other.to_owned(),
    };
    text.into_bytes()
}
