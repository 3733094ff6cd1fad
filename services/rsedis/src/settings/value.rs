//! The value of a parameter: from the words of redis.conf, of the command line or of CONFIG SET into the form in which CONFIG GET shows it.

use std::net::SocketAddr;

use super::table::SHUTDOWN_WORDS;
use super::{Kind, Parameter};

fn integer(word: &str, low: i64, high: i64) -> Result<i64, String> {
    let number = word.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
    match (low..=high).contains(&number) {
        true => Ok(number),
        false => Err(format!("argument must be between {low} and {high} inclusive")),
    }
}

fn oom_scores(words: &[String]) -> Result<String, String> {
    let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
    let is_score = |word: &&str| word.parse().is_ok_and(|score: i64| (-2000..=2000).contains(&score));
    match words.len() {
        3 if words.iter().all(is_score) => Ok(words.join(" ")),
        3 => Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".to_owned()),
        _ => Err("wrong number of arguments".to_owned()),
    }
}

/// A parameter's value in the form in which CONFIG GET shows it.
pub(super) fn normalise(parameter: &Parameter, words: &[String], before: &str) -> Result<String, String> {
    let single = || match words {
        [word] => Ok(word.as_str()),
        _ => Err("wrong number of arguments".to_owned()),
    };
    match parameter.kind {
        Kind::Boolean => match single()?.to_ascii_lowercase().as_str() {
            word @ ("yes" | "no") => Ok(word.to_owned()),
            _ => Err("argument must be 'yes' or 'no'".to_owned()),
        },
        Kind::Integer(low, high) => integer(single()?, low, high).map(|number| number.to_string()),
        Kind::Clamped(low, high) => {
            let number = integer(single()?, 0, i64::from(i32::MAX))?;
            Ok(number.clamp(low, high).to_string())
        }
        Kind::Memory(low, high) => {
            let bytes = memory(single()?).ok_or("argument must be a memory value")?;
            match (low..=high).contains(&bytes) {
                true => Ok(bytes.to_string()),
                false => Err(format!("argument must be between {low} and {high} inclusive")),
            }
        }
        Kind::MemoryOrPercent => {
            let word = single()?;
            match word.strip_suffix('%').map(str::parse::<u64>) {
                Some(Ok(percent @ 0..=100)) => Ok(format!("{percent}%")),
                Some(Ok(_)) => Err("percentage argument must be less or equal to 100".to_owned()),
                Some(Err(_)) => Err("argument must be a memory or percent value".to_owned()),
                None => {
                    let bytes = memory(word).ok_or("argument must be a memory or percent value")?;
                    Ok(bytes.to_string())
                }
            }
        }
        Kind::Words(known) => {
            let word = single()?.to_ascii_lowercase();
            match known.contains(&word.as_str()) {
                true => Ok(word),
                false => Err(format!("argument(s) must be one of the following: {}", known.join(", "))),
            }
        }
        Kind::Text => Ok(single()?.to_owned()),
        Kind::FileName => file_name(parameter, single()?),
        Kind::List => Ok(words.join(" ")),
        Kind::OomScores => oom_scores(words),
        Kind::Percentiles => percentiles(words),
        Kind::SavePoints => {
            let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
            let are_numbers = words.iter().all(|word| word.parse::<u32>().is_ok());
            match are_numbers && words.len().is_multiple_of(2) {
                true => Ok(words.join(" ")),
                false => Err("Invalid save parameters".to_owned()),
            }
        }
        Kind::Events => crate::events::parse(single()?)
            .map(crate::events::text)
            .ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()),
        Kind::OutputLimits => output_limits(words, before),
        Kind::Address => address(single()?),
        Kind::Shutdown => shutdown(words),
        Kind::Master => match words {
            [host, port] if host.eq_ignore_ascii_case("no") && port.eq_ignore_ascii_case("one") => Ok(String::new()),
            [host, port] if port.parse::<u16>().is_ok() => Ok(format!("{host} {port}")),
            [_, _] => Err("Invalid master port".to_owned()),
            _ => Err("wrong number of arguments".to_owned()),
        },
        Kind::Fixed(known) => {
            let value = words.join(" ");
            match known.contains(&value.to_ascii_lowercase().as_str()) {
                true => Ok(value),
                false => Err(format!(
                    "not supported: this server has '{}' only: {}",
                    known.join("' or '"),
                    remedy(parameter)
                )),
            }
        }
    }
}

/// What to do instead of what a parameter asks for that the server does not have.
fn remedy(parameter: &Parameter) -> &'static str {
    match parameter.name {
        "daemonize" => "run it under systemd, or with nohup and & in a shell",
        "supervised" => "a systemd unit starts it with Type=simple",
        "cluster-enabled" => "leave it out: replicas and Sentinel are there, Redis Cluster is not",
        _ => "leave it out",
    }
}

/// Files are where `dir` says: a path would lead elsewhere.
fn file_name(parameter: &Parameter, word: &str) -> Result<String, String> {
    let (name, is_directory) = (parameter.name, parameter.name == "appenddirname");
    if word.is_empty() && name != "dbfilename" {
        return Err(format!("{name} can't be empty"));
    }
    match word.contains(['/', '\\']) {
        true => Err(format!("{name} can't be a path, just a {}", if is_directory { "dirname" } else { "filename" })),
        false => Ok(word.to_owned()),
    }
}

/// Names of hosts are looked up by whoever connects: who listens says an address.
fn address(word: &str) -> Result<String, String> {
    match word.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 => Ok(word.to_owned()),
        _ if word.is_empty() => Ok(String::new()),
        _ => Err("argument must be an address and a port, such as 127.0.0.1:9121 or [::1]:9121, or ''".to_owned()),
    }
}

/// As C's `%f` writes them, without zeros at the end.
fn percentiles(words: &[String]) -> Result<String, String> {
    let shown = |word: &str| match word.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => {
            let text = format!("{percent:.6}");
            Ok(text.trim_end_matches('0').trim_end_matches('.').to_owned())
        }
        Ok(percent) if !percent.is_nan() => {
            Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".to_owned())
        }
        _ => Err("Invalid latency-tracking-info-percentiles parameters".to_owned()),
    };
    let words: Result<Vec<String>, String> = words.iter().flat_map(|word| word.split_whitespace()).map(shown).collect();
    Ok(words?.join(" "))
}

fn shutdown(words: &[String]) -> Result<String, String> {
    let asked: Vec<String> =
        words.iter().flat_map(|word| word.split_whitespace()).map(str::to_ascii_lowercase).collect();
    if asked.is_empty() || asked.iter().any(|word| !SHUTDOWN_WORDS.contains(&word.as_str())) {
        return Err(format!("argument(s) must be one of the following: {}", SHUTDOWN_WORDS.join(", ")));
    }
    let has = |wanted: &str| asked.iter().any(|word| word == wanted);
    if has("save") && has("nosave") {
        return Err("save and nosave exclude each other".to_owned());
    }
    let known: Vec<&str> = SHUTDOWN_WORDS.into_iter().skip(1).filter(|word| has(word)).collect();
    Ok(if known.is_empty() { SHUTDOWN_WORDS[0].to_owned() } else { known.join(" ") })
}

/// Bytes as Redis writes them: `1gb` is 2^30, `1g` is 10^9.
fn memory(text: &str) -> Option<i64> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    // Without a sign.
    let bytes = digits.parse::<u64>().ok().filter(|_| !digits.starts_with('+'))?;
    i64::try_from(bytes).ok()?.checked_mul(factor)
}

fn output_limits(words: &[String], before: &str) -> Result<String, String> {
    let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let mut limits: Vec<String> = before.split(' ').map(str::to_owned).collect();
    for group in words.chunks(4) {
        let class = match group[0].to_ascii_lowercase().as_str() {
            "replica" | "slave" => "slave",
            "normal" => "normal",
            "pubsub" => "pubsub",
            _ => return Err("Invalid client class specified in buffer limit configuration.".to_owned()),
        };
        let values: Option<Vec<i64>> =
            [memory(group[1]), memory(group[2]), group[3].parse().ok()].into_iter().collect();
        let values = values.filter(|values| values[2] >= 0);
        let values = values.ok_or("Error in hard, soft or soft_seconds setting in buffer limit configuration.")?;
        if let Some(at) = limits.iter().position(|word| *word == class) {
            for (offset, value) in values.iter().enumerate() {
                limits[at + 1 + offset] = value.to_string();
            }
        }
    }
    Ok(limits.join(" "))
}
