// What users of go-redis do, said on standard output: example PORT
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	for protocol := 2; protocol <= 3; protocol++ {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol})
		client.FlushAll(ctx)
		fmt.Println(client.Ping(ctx), client.Set(ctx, "key", "value", 100*time.Second), client.Get(ctx, "key"), client.Get(ctx, "nokey"))
		replies, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Incr(ctx, "counter")
			pipe.Incr(ctx, "counter")
			return nil
		})
		fmt.Println(replies, err)
		err = client.Watch(ctx, func(tx *redis.Tx) error {
			now, err := tx.Get(ctx, "counter").Int()
			if err != nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "counter", now+1, 0)
				return nil
			})
			return err
		}, "counter")
		fmt.Println(err, client.Get(ctx, "counter"))
		fmt.Println(client.HSet(ctx, "hash", "a", 1, "b", "two"), client.HGetAll(ctx, "hash"), client.HIncrByFloat(ctx, "hash", "a", 0.5))
		fmt.Println(client.RPush(ctx, "list", 1, 2, 3), client.LRange(ctx, "list", 0, -1), client.BLPop(ctx, time.Second, "list"))
		client.SAdd(ctx, "set", "x", "y")
		members := client.SMembers(ctx, "set").Val()
		sort.Strings(members)
		fmt.Println(members, client.SIsMember(ctx, "set", "x"))
		client.ZAdd(ctx, "zset", redis.Z{Score: 1, Member: "one"}, redis.Z{Score: 2.5, Member: "two"})
		fmt.Println(client.ZRangeWithScores(ctx, "zset", 0, -1), client.ZPopMin(ctx, "zset"))
		var found []string
		for iterator := client.Scan(ctx, 0, "*set*", 0).Iterator(); iterator.Next(ctx); {
			found = append(found, iterator.Val())
		}
		sort.Strings(found)
		fmt.Println(found)
		script := redis.NewScript("return {KEYS[1], ARGV[1], redis.call('GET', KEYS[1])}")
		fmt.Println(script.Run(ctx, client, []string{"key"}, "x"))
		fmt.Println(client.XAdd(ctx, &redis.XAddArgs{Stream: "stream", ID: "1-1", Values: []string{"field", "value"}}))
		fmt.Println(client.XGroupCreate(ctx, "stream", "group", "0"))
		fmt.Println(client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "group", Consumer: "alice", Streams: []string{"stream", ">"}}))
		fmt.Println(client.XAck(ctx, "stream", "group", "1-1"))
		fmt.Println(client.GeoAdd(ctx, "geo", &redis.GeoLocation{Name: "Palermo", Longitude: 13.361389, Latitude: 38.115556}))
		fmt.Println(client.GeoPos(ctx, "geo", "Palermo").Val()[0], client.PFAdd(ctx, "hll", "a", "b"), client.PFCount(ctx, "hll"))
		listener := client.Subscribe(ctx, "channel")
		fmt.Println(listener.Receive(ctx))
		fmt.Println(client.Publish(ctx, "channel", "text"))
		fmt.Println(listener.ReceiveMessage(ctx))
		listener.Close()
		fmt.Println(client.Incr(ctx, "hash"), client.Do(ctx, "NOSUCH", "a"), client.Do(ctx, "GET"))
		fmt.Println(client.ConfigGet(ctx, "maxmemory"), client.DBSize(ctx))
		client.Close()
	}
}
