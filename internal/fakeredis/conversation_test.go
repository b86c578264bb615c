package fakeredis_test

import "github.com/lockwire/lockwire/internal/fakeredis"

// conversation is sent, line by line, to the fake and to a real server; each word is an argument, 'of several words' in
// quotes. Whatever is wrong with the replies of the fake shows as a difference.
const conversation = `
PING
PING hi
PING a b
ECHO
ECHO hi
FOO a b
foo
CLIENT FOO
CLIENT SETNAME
CLIENT SETNAME 'a b'
CLIENT GETNAME
CLIENT SETNAME me
CLIENT GETNAME
CLIENT SETINFO a b
CLIENT NO-EVICT on
CLIENT NO-TOUCH on
CLIENT REPLY ON
CLIENT TRACKING off
CLIENT KILL ID 99999
CLIENT KILL 1.2.3.4:5
AUTH x
AUTH default y
AUTH foo bar
AUTH a b c
HELLO 4
HELLO x
HELLO 3 FOO
HELLO 3 AUTH a
HELLO 3 AUTH foo bar
HELLO 2 SETNAME 'a b'
SELECT 16
SELECT -1
SELECT a
SELECT 1
SET other 1
SELECT 0
GET other
ASKING
READONLY
READWRITE
CLUSTER INFO
ROLE
WAIT 0 0
WAIT 1 5
WAIT 0 -1
WAIT a 1
WAIT 0 x
SCRIPT FOO
SCRIPT
SCRIPT KILL
SCRIPT FLUSH FOO
SCRIPT FLUSH ASYNC
SCRIPT EXISTS a b
EVAL
EVAL return a
EVALSHA zz 0
EVALSHA_RO zz 0
EVALSHA zz a
EVALSHA zz -1
EVALSHA zz 2 a
PUBSUB FOO
PUBSUB CHANNELS a b
PUBSUB CHANNELS
PUBSUB SHARDCHANNELS
PUBSUB NUMPAT
PUBSUB NUMSUB a b
PUBSUB SHARDNUMSUB a
PUBLISH a b
SPUBLISH a b
UNSUBSCRIBE
PUNSUBSCRIBE
SUNSUBSCRIBE
UNSUBSCRIBE q
MULTI
MULTI
WATCH a
GET
EXEC
MULTI
SET t v
LPUSH t x
GET t
BLPOP none 0
BLMOVE none t LEFT LEFT 0
WAIT 1 0
SELECT 1
GET other
SELECT 0
EXEC
GET t
MULTI
NOSUCH
GET t
EXEC
EXEC
DISCARD
MULTI
SET t w
DISCARD
GET t
WATCH t
SET t changed
MULTI
GET t
EXEC
WATCH t u
UNWATCH
SET t again
MULTI
GET t
EXEC
SET a
SET a b FOO
SET a b EX
SET a b EX 0
SET a b EX -1
SET a b EX x
SET a b EX x FOO
SET a b PX 5 EX 5
SET a b NX XX
SET a b KEEPTTL PX 5
SET a b PX 9223372036854775807
SET a b EX 9223372036854775807
SET a b XX
SET a b NX GET
SET a c NX GET
SET a c NX
SET a c XX GET
PEXPIRE a 9223372036854775807
PEXPIRE a x
PEXPIRE a 5 NX XX
PEXPIRE a 5 GT LT
PEXPIRE a 5 FOO
PEXPIREAT a 9000000000000
PEXPIREAT a 8000000000000 GT
PEXPIREAT a 8000000000000 LT
PEXPIREAT a 8000000000000 NX
SET a d KEEPTTL
APPEND a x
INCR a
PEXPIREAT a 8000000000000 GT
PEXPIREAT a 8000000000000 XX
PEXPIREAT a 8000000000000 LT
PERSIST a
PERSIST a
EXPIRE a 100000
TTL a
TTL none
TTL t
PTTL none
PTTL t
EXPIRE a 0
EXISTS a
SET a b PXAT 1
EXISTS a
SET z 1
INCR t
SET a 9223372036854775807
INCR a
DECRBY a -9223372036854775808
INCRBY a 01
INCRBY a +1
INCRBY a -0
DECR a
SET a 01
INCR a
SET a ''
INCR a
STRLEN a
STRLEN none
APPEND a hello
GET a
MSET a
MSET a 1 b 2
MSET a 1 b
MGET a b c none
SETNX a 1
SETNX e 1
HSET h a
HSET h a b c
HINCRBY h f x
HSET h f v
HINCRBY h f 1
HINCRBY h g 9223372036854775807
HINCRBY h g 1
HSET h f w i 1
HSETNX h j 3
HSETNX h l 3
HGET h f
HGET h none
HGET none f
HMGET h f none j
HMGET none a b
HGETALL h
HGETALL none
HKEYS h
HKEYS none
HLEN h
HLEN none
HSTRLEN h f
HSTRLEN none f
HEXISTS h f
HEXISTS h none
HEXISTS none f
HSCAN h 0
HSCAN h 0 MATCH [f-g]
HSCAN h x
HDEL h f none j
HDEL none f
HDEL h g i k l
EXISTS h
HGET t f
HSET t f v
HSETNX t f v
HINCRBY t f 1
HDEL t f
HGETALL t
LPOP l -1
LPOP l x
LPOP l 0
LPOP l
LPOP l 1 2
RPUSH l a b c d
LPUSH l z y
LPOP l 0
LPOP l
LRANGE l 0 -1
RPUSH l a b a c a
LRANGE l -3 -2
LRANGE l 5 1
LRANGE none 0 -1
LREM l 2 a
LREM l -1 a
LREM l 0 nope
LREM none 0 a
LRANGE l 0 -1
LINDEX l 0
LINDEX l -1
LINDEX l 99
LINDEX l x
LINDEX none x
LRANGE l 0 -1
EXISTS l
LLEN none
RPUSH l 1 2 3
LRANGE m 0 -1
LLEN t
LPUSH t a
RPUSH l x y
RPUSH m a b
BLPOP l -1
BLPOP l x
BLPOP t 0.01
BLPOP none 0.01
BLPOP none l 0
BLMOVE none l LEFT LEFT 0.01
BLMOVE m l LEFT LEFT 0
BLMOVE t l LEFT LEFT 0
SADD s 3 1 2
SADD s 3 4
SMEMBERS s
SMEMBERS none
EXISTS s
SADD t x
ZADD z 1 a
DEL z
ZADD z nan a
ZADD z x a
ZADD z NX XX 1 a
ZADD z GT LT 1 a
ZADD z GT NX 1 a
ZADD z INCR 1 a 2 b
ZADD z 1
ZADD z NX
ZADD z XX 1 a
ZADD z XX INCR 1 a
ZADD z 1 a 2 b 1.5 c 2 bb
ZADD z CH 1 a 3 b
ZADD z NX 9 a
ZADD z GT 0 a
ZADD z LT CH 0 a
ZADD z INCR 1.1 a
ZADD z NX INCR 1 a
ZADD z inf i
ZADD z -inf j
ZINCRBY z -inf i
ZINCRBY z 1 a
ZINCRBY z x a
ZINCRBY t 1 a
ZSCORE z i
ZSCORE z none
ZSCORE none a
ZCARD z
ZCARD none
ZCOUNT z -inf +inf
ZCOUNT z (1.5 2
ZCOUNT z a b
ZRANK z c
ZRANK z none
ZRANGE z 0 -1
ZRANGE z 0 -1 WITHSCORES
ZRANGE z 1 2 REV
ZRANGE z 0 x
ZRANGE z 0 -1 LIMIT 0 1
ZRANGE z 0 -1 FOO
ZRANGE z 1 3 BYSCORE WITHSCORES
ZRANGE z 3 1 BYSCORE REV LIMIT 1 1
ZRANGE none 0 -1
ZREVRANGE z 0 1 WITHSCORES
ZRANGEBYSCORE z a b
ZRANGEBYSCORE z -inf (5 WITHSCORES LIMIT 0 1
ZRANGEBYSCORE z -inf +inf LIMIT 1 -1
ZRANGEBYSCORE z -inf +inf LIMIT -1 2
ZRANGEBYSCORE z -inf +inf LIMIT 90 2
ZREMRANGEBYSCORE z 2 (3
ZREM z none
ZREM none a
ZADD z 1e20 big 0.1 small 123456789012 ms
ZRANGE z 0 -1 WITHSCORES
ZREM z big small ms
EXISTS z
ZADD t 1 a
TYPE b
TYPE none
TYPE l
DEL b none
UNLINK none
EXISTS t t none
FLUSHALL FOO
FLUSHALL
DBSIZE
SET k1 v
SET k2 v
HSET k[3] f v
KEYS ?1
KEYS *3*
KEYS k[0-1]
KEYS k[^1]
KEYS k\[3]
KEYS k\?
SCAN x
SCAN 0 COUNT 0
SCAN 0 COUNT x
SCAN 0 FOO
SCAN 0 COUNT 100 TYPE hash
SCAN 0 COUNT 100 MATCH k1
DBSIZE
`

// subscribedConversation ends what the connection can do in RESP2.
const subscribedConversation = `
SUBSCRIBE a b
SUBSCRIBE a
PING
PING hi
PUBLISH a hello
GET k
PSUBSCRIBE a*
PUBLISH a hello
SSUBSCRIBE x
SPUBLISH x y
PUBSUB CHANNELS b*
UNSUBSCRIBE a
UNSUBSCRIBE c
UNSUBSCRIBE
PUNSUBSCRIBE
SUNSUBSCRIBE x
GET k
SUBSCRIBE c
RESET
GET k
QUIT
`

// luaScript is a script in Lua and in Go, and a way to call it.
type luaScript struct {
	source string
	run    func(*fakeredis.Call) any
	args   []string
}

func luaScripts() []luaScript {
	type call = fakeredis.Call
	return []luaScript{
		{`return 3`, func(*call) any { return int64(3) }, []string{"0"}},
		{`return {1, 'a', false, true, {}}`, func(*call) any { return []any{1, "a", nil, true, []any{}} }, []string{"0"}},
		{`return redis.status_reply('FINE')`, func(*call) any { return fakeredis.Status("FINE") }, []string{"0"}},
		{`return redis.error_reply('MINE no')`, func(*call) any { return fakeredis.Err("MINE no") }, []string{"0"}},
		{`return {err = 'A\r\nB'}`, func(*call) any { return fakeredis.Err("A\r\nB") }, []string{"0"}},
		{`return {KEYS, ARGV}`, func(c *call) any { return []any{c.Keys, c.Args} }, []string{"2", "a", "b", "c"}},
		{`return nil`, func(*call) any { return nil }, []string{"0"}},
		{`return redis.call('set', KEYS[1], ARGV[1])`, func(c *call) any { return c.Do("set", c.Keys[0], c.Args[0]) }, []string{"1", "sk", "v"}},
		{`return redis.call('incr', KEYS[1])`, func(c *call) any { return c.Do("incr", c.Keys[0]) }, []string{"1", "sk"}},
		{`return redis.call('hincrby', KEYS[1], 'f', 1)`, func(c *call) any { return c.Do("hincrby", c.Keys[0], "f", "1") }, []string{"1", "sk"}},
		{`return redis.pcall('hget', KEYS[1], 'f')`, func(c *call) any { return c.TryDo("hget", c.Keys[0], "f") }, []string{"1", "sk"}},
		{`return {redis.pcall('hget', KEYS[1], 'f'), 'tail'}`, func(c *call) any { return []any{c.TryDo("hget", c.Keys[0], "f"), "tail"} }, []string{"1", "sk"}},
		{`return redis.call('nosuch')`, func(c *call) any { return c.Do("nosuch") }, []string{"0"}},
		{`return redis.call('get')`, func(c *call) any { return c.Do("get") }, []string{"0"}},
		{`return redis.call('subscribe', 'x')`, func(c *call) any { return c.Do("subscribe", "x") }, []string{"0"}},
		{`return redis.call('blpop', 'none', 0)`, func(c *call) any { return c.Do("blpop", "none", "0") }, []string{"0"}},
		{`return redis.call('mget', 'sk', 'none')`, func(c *call) any { return c.Do("mget", "sk", "none") }, []string{"0"}},
		{`return redis.call('zadd', 'sz', 1.5, 'a')`, func(c *call) any { return c.Do("zadd", "sz", "1.5", "a") }, []string{"0"}},
		{`return redis.call('zrange', 'sz', 0, -1, 'withscores')`, func(c *call) any { return c.Do("zrange", "sz", "0", "-1", "withscores") }, []string{"0"}},
		{`return redis.call('zscore', 'sz', 'a')`, func(c *call) any { return c.Do("zscore", "sz", "a") }, []string{"0"}},
		{`return redis.call('publish', 'x', 'y')`, func(c *call) any { return c.Publish("x", "y") }, []string{"0"}},
		{`return redis.call('type', 'sz')['ok']`, func(c *call) any { return string(c.Do("type", "sz").(fakeredis.Status)) }, []string{"0"}},
	}
}
