package conn_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"time"

	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/pubsub"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

type user struct {
	Name string `redis:"name"`
	Age  int    `redis:"age"`
}

var addUpTo = script.New(`local n = redis.call('INCRBY', KEYS[1], ARGV[1]) return math.min(n, ARGV[2])`)

// A hash as a map.
func hashAsMap(ctx context.Context, p *conn.Pool, key string) (map[string]string, error) {
	return resp.As[map[string]string](p.Do(ctx, "HGETALL", key))
}

// A hash as a struct, if there is one.
func hashAsStruct(ctx context.Context, p *conn.Pool, key string) (user, bool, error) {
	return resp.Maybe[user](p.Do(ctx, "HGETALL", key))
}

// All keys that match a pattern.
func allKeys(ctx context.Context, p *conn.Pool, pattern string) (keys []string, err error) {
	for key, err := range conn.Scan(ctx, p, "MATCH", pattern, "COUNT", 1000) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// The next entries of a stream for a consumer of a group.
func consume(ctx context.Context, p *conn.Pool, stream, group string) iter.Seq2[resp.Entry, error] {
	return resp.Entries(p.Do(ctx, "XREADGROUP", "GROUP", group, "me", "STREAMS", stream, ">"))
}

// The values of many keys, nil for each missing key.
func getMany(ctx context.Context, p *conn.Pool, keys []string) ([]*string, error) {
	return resp.As[[]*string](p.Do(ctx, "MGET", keys))
}

// A batch with results of several types.
func visit(ctx context.Context, p *conn.Pool, page, visitor string) (hits int, visitors []string, err error) {
	var q conn.Queue
	n := conn.Add[int](&q, "INCR", "hits:"+page)
	conn.Add[int](&q, "SADD", "visitors:"+page, visitor)
	all := conn.Add[[]string](&q, "SMEMBERS", "visitors:"+page)
	err = q.Run(ctx, p)
	hits, _ = n.Get()
	visitors, _ = all.Get()
	return hits, visitors, err
}

// A change that depends on the present value, repeated if another client changes the value meanwhile.
func double(ctx context.Context, p *conn.Pool, key string) error {
	_, err := p.Watch(ctx, []string{key}, func(c *conn.Conn) ([]resp.Command, error) {
		n, err := resp.As[int](c.Do(ctx, "GET", key))
		return []resp.Command{resp.Cmd("SET", key, 2*n)}, err
	})
	return err
}

// The next element of a list, for which it waits.
func nextJob(ctx context.Context, p *conn.Pool, list string, seconds int) (job []string, ok bool, err error) {
	return resp.Maybe[[]string](p.Block(ctx, "BLPOP", list, seconds))
}

// A message to a channel, and its arrival.
func publish(ctx context.Context, p *conn.Pool, channel, text string) (string, error) {
	subscriber := pubsub.New(p, pubsub.Config{})
	defer subscriber.Close()
	sub, err := subscriber.Subscribe(ctx, channel)
	if err != nil {
		return "", err
	}
	if _, err := p.Do(ctx, "PUBLISH", channel, text); err != nil {
		return "", err
	}
	return (<-sub.Events()).Payload, nil
}

// A Lua script.
func add(ctx context.Context, p *conn.Pool, key string, n, limit int) (int, error) {
	return resp.As[int](addUpTo.Run(ctx, p, []string{key}, n, limit))
}

// A pipeline in which some commands fail.
func pushAll(ctx context.Context, p *conn.Pool, keys []string, value string) (failed []string, err error) {
	var q conn.Queue
	lengths := make([]*conn.Result[int], len(keys))
	for i, key := range keys {
		lengths[i] = conn.Add[int](&q, "RPUSH", key, value)
	}
	err = q.Run(ctx, p)
	for i, n := range lengths {
		if _, err := n.Get(); err != nil {
			failed = append(failed, keys[i])
		}
	}
	return failed, err
}

// The number of keys in a cluster.
func countKeys(ctx context.Context, c *cluster.Cluster) (total int, err error) {
	for _, err := range conn.Scan(ctx, c, "COUNT", 1000) {
		if err != nil {
			return 0, err
		}
		total++
	}
	return total, nil
}

// The time until a key expires.
func timeLeft(ctx context.Context, p *conn.Pool, key string) (time.Duration, error) {
	return resp.Milliseconds(p.Do(ctx, "PTTL", key))
}

// Everyday tasks, each a function: hashes, scans, streams, batches, optimistic changes, lists, channels, scripts, clusters.
func Example_tasks() {
	ctx := context.Background()
	p := openExample(ctx)
	defer p.Close()
	check := func(_ resp.Value, err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	check(p.Do(ctx, "HSET", "task:user", resp.Fields(user{"Ada", 36})))
	fmt.Println(hashAsMap(ctx, p, "task:user"))
	fmt.Println(hashAsStruct(ctx, p, "task:user"))
	fmt.Println(hashAsStruct(ctx, p, "task:nobody"))
	fmt.Println(allKeys(ctx, p, "task:*"))

	check(p.Do(ctx, "XGROUP", "CREATE", "task:jobs", "workers", "0", "MKSTREAM"))
	check(p.Do(ctx, "XADD", "task:jobs", "1-0", "name", "sweep"))
	for e, err := range consume(ctx, p, "task:jobs", "workers") {
		fmt.Println(e.ID, e.Get("name"), err)
		check(p.Do(ctx, "XACK", e.Stream, "workers", e.ID))
	}

	check(p.Do(ctx, "MSET", resp.Fields(map[string]int{"task:a": 1, "task:b": 20})))
	values, err := getMany(ctx, p, []string{"task:a", "task:b", "task:c"})
	fmt.Println(*values[0], *values[1], values[2] == nil, err)
	fmt.Println(visit(ctx, p, "task", "Ada"))
	fmt.Println(double(ctx, p, "task:b"))
	check(p.Do(ctx, "RPUSH", "task:list", "one"))
	fmt.Println(nextJob(ctx, p, "task:list", 1))
	fmt.Println(publish(ctx, p, "task:news", "hello"))
	fmt.Println(add(ctx, p, "task:b", 5, 42))
	fmt.Println(pushAll(ctx, p, []string{"task:x", "task:a", "task:y"}, "v"))
	check(p.Do(ctx, "SET", "task:short", "", "PX", 90_000))
	left, err := timeLeft(ctx, p, "task:short")
	fmt.Println(left > 0 && left <= 90*time.Second, err)

	c := openExampleCluster(ctx)
	defer c.Close()
	check(c.Do(ctx, "SET", "task:a", 1))
	check(c.Do(ctx, "SET", "task:b", 2))
	fmt.Println(countKeys(ctx, c.Cluster))
	// Output:
	// map[age:36 name:Ada] <nil>
	// {Ada 36} true <nil>
	// { 0} false <nil>
	// [task:user] <nil>
	// 1-0 sweep <nil>
	// 1 20 true <nil>
	// 1 [Ada] <nil>
	// <nil>
	// [task:list one] true <nil>
	// hello <nil>
	// 42 <nil>
	// [task:a] conn: command 2 of 3, RPUSH: WRONGTYPE Operation against a key holding the wrong kind of value
	// true <nil>
	// 2 <nil>
}
