//! What users of the crate `redis` do, said on standard output: example PORT

use redis::{Commands, RedisResult};

fn main() -> RedisResult<()> {
    let port = std::env::args().nth(1).unwrap_or_default();
    for protocol in ["", "?protocol=resp3"] {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/{protocol}"))?;
        let mut connection = client.get_connection()?;
        let _: () = redis::cmd("FLUSHALL").query(&mut connection)?;
        let _: () = connection.set_ex("key", "value", 100)?;
        let (value, none): (String, Option<String>) = (connection.get("key")?, connection.get("nokey")?);
        println!("{value} {none:?}");
        let counted: (i64, i64) = redis::pipe().incr("counter", 1).incr("counter", 2).query(&mut connection)?;
        println!("{counted:?}");
        let changed: (i64,) = redis::transaction(&mut connection, &["counter"], |connection, pipe| {
            let now: i64 = connection.get("counter")?;
            pipe.set("counter", now + 1).ignore().get("counter").query(connection)
        })?;
        println!("{changed:?}");
        let _: () = connection.hset_multiple("hash", &[("a", "1"), ("b", "two")])?;
        let mut fields: Vec<(String, String)> = connection.hgetall("hash")?;
        fields.sort();
        println!("{fields:?}");
        let length: usize = connection.rpush("list", &["1", "2", "3"])?;
        let (all, popped): (Vec<i64>, (String, i64)) = (connection.lrange("list", 0, -1)?, connection.blpop("list", 1.0)?);
        println!("{length} {all:?} {popped:?}");
        let _: () = connection.zadd_multiple("zset", &[(1.0, "one"), (2.5, "two")])?;
        let scores: Vec<(String, f64)> = connection.zrange_withscores("zset", 0, -1)?;
        println!("{scores:?}");
        let mut keys: Vec<String> = connection.scan_match("*s*")?.collect::<RedisResult<_>>()?;
        keys.sort();
        println!("{keys:?}");
        let script = redis::Script::new("return {KEYS[1], ARGV[1], redis.call('GET', KEYS[1])}");
        let said: Vec<String> = script.key("key").arg("x").invoke(&mut connection)?;
        println!("{said:?}");
        let mut listening = client.get_connection()?;
        let mut listener = listening.as_pubsub();
        listener.subscribe("channel")?;
        let heard: usize = connection.publish("channel", "text")?;
        println!("{heard} {}", listener.get_message()?.get_payload::<String>()?);
        for command in [["INCR", "hash"], ["NOSUCH", "a"]] {
            let refused: RedisResult<i64> = redis::cmd(command[0]).arg(command[1]).query(&mut connection);
            println!("{refused:?}");
        }
    }
    Ok(())
}
