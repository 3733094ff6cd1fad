"""What users of redis-py do, said on standard output: example.py PORT"""

import sys
import threading

import redis

port = int(sys.argv[1])
for protocol in (2, 3):
    client = redis.Redis(port=port, protocol=protocol, decode_responses=True)
    client.flushall()
    print("ping", client.ping(), client.set("key", "value", ex=100), client.get("key"), client.ttl("key") > 90)
    print("none", client.get("nokey"), client.set("key", "other", nx=True), client.exists("key", "nokey"))
    with client.pipeline(transaction=False) as pipeline:
        print("pipeline", [pipeline.incr("counter") and None for _ in range(3)], pipeline.execute())

    def add(pipeline):
        now = int(pipeline.get("counter"))
        pipeline.multi()
        pipeline.set("counter", now + 1)

    print("transaction", client.transaction(add, "counter"), client.get("counter"))
    client.hset("hash", mapping={"a": 1, "b": "two"})
    print("hash", client.hgetall("hash"), client.hincrbyfloat("hash", "a", 0.5))
    client.rpush("list", 1, 2, 3)
    print("list", client.lrange("list", 0, -1), client.blpop(["nolist", "list"], timeout=1), client.lmove("list", "list2", "LEFT", "RIGHT"))
    client.sadd("set", "x", "y")
    print("set", sorted(client.smembers("set")), client.sismember("set", "x"))
    client.zadd("zset", {"one": 1, "two": 2.5})
    print("zset", client.zrange("zset", 0, -1, withscores=True), client.zscore("zset", "two"), client.zpopmin("zset"))
    print("scan", sorted(client.scan_iter(match="*set*")), sorted(client.hscan_iter("hash")))
    script = client.register_script("return {KEYS[1], ARGV[1], redis.call('GET', KEYS[1])}")
    print("script", script(keys=["key"], args=["x"]), client.script_exists(script.sha))
    client.function_load("#!lua name=lib\nredis.register_function('double', function(k, a) return a[1] * 2 end)", replace=True)
    print("function", client.fcall("double", 0, 21))
    first = client.xadd("stream", {"field": "value"}, id="1-1")
    client.xgroup_create("stream", "group", id="0")
    print("stream", first, client.xreadgroup("group", "alice", {"stream": ">"}), client.xack("stream", "group", first), client.xlen("stream"))
    client.geoadd("geo", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"))
    print("geo", client.geodist("geo", "Palermo", "Catania", unit="km"), client.geosearch("geo", longitude=15, latitude=37, radius=200, unit="km", sort="ASC"))
    print("bits", client.setbit("bits", 7, 1), client.bitcount("bits"), client.pfadd("hll", "a", "b"), client.pfcount("hll"))
    listener = client.pubsub()
    listener.subscribe("channel")
    listener.psubscribe("chan*")
    print("subscribed", [listener.get_message(timeout=5)["type"] for _ in range(2)])
    print("messages", client.publish("channel", "text"), [listener.get_message(timeout=5)["data"] for _ in range(2)])
    listener.close()
    waiter = threading.Thread(target=lambda: print("woken", client.brpop("later", timeout=10)))
    waiter.start()
    client.lpush("later", "now")
    waiter.join()
    client.acl_setuser("reader", enabled=True, passwords=["+secret"], keys=["key*"], commands=["+get", "+ping", "+client", "+hello"])
    reader = redis.Redis(port=port, protocol=protocol, username="reader", password="secret", decode_responses=True)
    print("user", reader.get("key"))
    for command in (lambda: reader.set("key", 1), lambda: reader.get("other"), lambda: client.incr("hash"), lambda: client.execute_command("NOSUCH", "a")):
        try:
            print("done", command())
        except redis.RedisError as error:
            print("refused", type(error).__name__, error)
    client.acl_deluser("reader")
    print("info", client.info("server")["redis_mode"], client.config_get("maxmemory"), client.dbsize(), client.client_getname())
