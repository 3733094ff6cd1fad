//! Loading a server that is somebody's: looked at before, cleaned up after. See [`crate::load::outside`].

use std::time::Duration;

use storebench_crds::workload::redis::{RedisCommand, RedisProtocol};
use tokio::time::timeout;

use crate::content::keys::KeyNames;
use crate::failure::Failure;
use crate::family::redis::connection::Connection;
use crate::family::redis::plan::{Plan, namespace_prefix};
use crate::family::redis::probe::name_and_version_in;
use crate::load::Context;
use crate::load::outside::{Guest, Outside};

/// Keys that one command counts or deletes: few enough that nobody else waits for long.
const KEYS_AT_ONCE: u32 = 200;

/// All that a workload may have written, by name.
#[derive(Debug)]
pub struct Written {
    structures: Vec<String>,
    /// Absent: there are no keys but structures.
    keys: Option<(KeyNames, std::ops::Range<u32>)>,
}

impl Written {
    /// What a plan writes.
    pub fn by(plan: &Plan) -> Self {
        let structures =
            [plan.structure(), plan.warm_up_structure()].into_iter().flatten().map(str::to_owned).collect();
        let is_ping = matches!(plan.parameters.command, RedisCommand::Ping | RedisCommand::PingInline);
        let has_keys = plan.structure().is_none() && !is_ping;
        Self { structures, keys: has_keys.then(|| (plan.names.clone(), plan.space.range())) }
    }

    /// How many of these keys there are.
    async fn count(&self, connection: &mut Connection, patience: Duration) -> Result<i64, Failure> {
        self.each(b"EXISTS", connection, patience).await
    }

    async fn remove(&self, connection: &mut Connection, patience: Duration) -> Result<(), Failure> {
        self.each(b"UNLINK", connection, patience).await.map(drop)
    }

    /// Names all keys to a command that answers with a number: the sum.
    async fn each(&self, name: &[u8], connection: &mut Connection, patience: Duration) -> Result<i64, Failure> {
        let mut sum = 0;
        for structure in &self.structures {
            sum += ask(connection, patience, &[name, structure.as_bytes()]).await?;
        }
        let Some((names, range)) = &self.keys else { return Ok(sum) };
        let mut first = range.start;
        while first < range.end {
            let next = range.end.min(first + KEYS_AT_ONCE);
            let keys: Vec<Vec<u8>> = (first..next).map(|key| names.name(key)).collect();
            let mut command: Vec<&[u8]> = vec![name];
            command.extend(keys.iter().map(Vec::as_slice));
            sum += ask(connection, patience, &command).await?;
            first = next;
        }
        Ok(sum)
    }
}

async fn ask(connection: &mut Connection, patience: Duration, command: &[&[u8]]) -> Result<i64, Failure> {
    let name = String::from_utf8_lossy(command[0]).into_owned();
    match timeout(patience, connection.ask(command)).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::new(format_args!("{name}: no answer within {patience:?}"))),
    }
}

async fn info(connection: &mut Connection, patience: Duration, section: &str) -> Result<String, Failure> {
    match timeout(patience, connection.info(section)).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::new(format_args!("INFO {section}: no answer within {patience:?}"))),
    }
}

/// Keys of all databases, as `INFO keyspace` has them: `db0:keys=3,expires=0,…`. A database without keys is not named.
fn keys_of_all_databases(info: &str) -> u64 {
    let keys = info.lines().filter_map(|line| {
        let (database, facts) = line.trim_end().split_once(':')?;
        database.strip_prefix("db")?.parse::<u32>().ok()?;
        facts.split(',').find_map(|fact| fact.strip_prefix("keys="))?.parse::<u64>().ok()
    });
    keys.sum()
}

/// The policy by which a server that is full throws keys away, as `INFO memory` has it: then it is anybody's keys that go. `None` where it has
/// no bound, or refuses writes instead.
fn evicting_policy(info: &str) -> Option<&str> {
    let value = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
    let is_bounded = value("maxmemory").is_some_and(|bytes| bytes != "0");
    is_bounded.then(|| value("maxmemory_policy").unwrap_or("unknown")).filter(|policy| *policy != "noeviction")
}

impl Guest for Written {
    /// The server holds no key in any database, or those of others are consented to and cannot be evicted; and none has a name that this load
    /// may write.
    async fn look(&self, context: &Context, outside: &Outside) -> Result<Option<String>, Failure> {
        let mut version = None;
        for endpoint in &context.endpoints {
            let mut connection = open(context, endpoint).await?;
            let patience = context.timeout;
            // DBSIZE counts one database only; a server that is none of Redis's own may not have the section.
            let selected = ask(&mut connection, patience, &[b"DBSIZE"]).await?.unsigned_abs();
            let keys = selected.max(keys_of_all_databases(&info(&mut connection, patience, "keyspace").await?));
            outside.judge(keys, endpoint)?;
            version = name_and_version_in(&info(&mut connection, patience, "server").await?);
            if keys == 0 {
                continue;
            }
            if let Some(policy) = evicting_policy(&info(&mut connection, patience, "memory").await?) {
                return Err(Failure::new(format_args!(
                    "the store at {endpoint} has a maxmemory and evicts keys by {policy} when it is full, so the load could cost somebody's \
                     keys: set its maxmemory-policy to noeviction, or give a store that is empty"
                )));
            }
            let taken = self.count(&mut connection, patience).await?;
            if taken > 0 {
                return Err(Failure::new(format_args!(
                    "the store at {endpoint} holds {taken} keys of the names that nobody but this load may write: run it again"
                )));
            }
        }
        Ok(version)
    }

    fn leaves(&self, context: &Context, namespace: &str) -> (String, String) {
        let prefix = namespace_prefix(namespace);
        let (host, port) = context.endpoints[0].rsplit_once(':').unwrap_or((&context.endpoints[0], "6379"));
        let outside = context.outside.as_ref();
        let tls = if outside.is_some_and(|outside| outside.tls.is_some()) { " --tls" } else { "" };
        let redis_cli = format!("redis-cli -h {} -p {port}{tls}", host.trim_matches(['[', ']']));
        let login = match outside.and_then(|outside| outside.credentials.as_ref()) {
            Some(credentials) if credentials.user.is_empty() => " (REDISCLI_AUTH has the password)".into(),
            Some(credentials) => format!(" (REDISCLI_AUTH has the password; add --user {} to both)", credentials.user),
            None => String::new(),
        };
        let removal = format!("{redis_cli} --scan --pattern '{prefix}*' | xargs -r {redis_cli} unlink{login}");
        (prefix, removal)
    }

    async fn clean_up(&self, context: &Context) -> Result<(), Failure> {
        for endpoint in &context.endpoints {
            self.remove(&mut open(context, endpoint).await?, context.timeout).await?;
        }
        Ok(())
    }
}

async fn open(context: &Context, endpoint: &str) -> Result<Connection, Failure> {
    Connection::open(endpoint, RedisProtocol::Resp2, context.timeout, context.outside.as_ref()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_database_are_counted() {
        let info = "# Keyspace\r\ndb0:keys=2,expires=0,avg_ttl=0\r\ndb15:keys=40,expires=1,avg_ttl=9,subexpiry=0\r\n";
        assert_eq!(keys_of_all_databases(info), 42);
        assert_eq!(keys_of_all_databases("# Keyspace\r\n"), 0);
    }

    #[test]
    fn a_server_without_a_bound_evicts_nothing() {
        let info = |maxmemory: &str, policy: &str| {
            format!("# Memory\r\nmaxmemory:{maxmemory}\r\nmaxmemory_human:1M\r\nmaxmemory_policy:{policy}\r\n")
        };
        assert_eq!(evicting_policy(&info("0", "allkeys-lru")), None);
        assert_eq!(evicting_policy(&info("1048576", "noeviction")), None);
        assert_eq!(evicting_policy(&info("1048576", "volatile-ttl")), Some("volatile-ttl"));
        assert_eq!(evicting_policy("maxmemory:1\r\n"), Some("unknown"));
    }
}
