package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/redistest"
	"github.com/lockwire/lockwire/lock/internal/kinds"
	"github.com/lockwire/lockwire/resp"
	"github.com/lockwire/lockwire/script"
)

// exhaustiveEnv set to 1 has TestServerScripts take every transition of every kind, for some minutes, and not a sample.
const exhaustiveEnv = "LOCKWIRE_EXHAUSTIVE"

// seedEnv is the seed of the samples; unset is a new one each time, which a failure prints.
const seedEnv = "LOCKWIRE_SEED"

// sampled is the number of transitions of each kind in a sample.
const sampled = 4000

// restoreScript runs commands, each behind its length.
var restoreScript = script.New(`
local i = 1
while i < #ARGV do
    local n = tonumber(ARGV[i])
    redis.call(unpack(ARGV, i + 1, i + n))
    i = i + n + 1
end`)

// dumpScript lists all keys, and deletes them.
var dumpScript = script.New(`
local dump = { redis.call('time') }
local list = { hash = 'hgetall', string = 'get', list = 'lrange', zset = 'zrange', set = 'smembers' }
for _, key in ipairs(redis.call('keys', '*')) do
    local kind = redis.call('type', key).ok
    local value
    if kind == 'list' then value = redis.call('lrange', key, 0, -1)
    elseif kind == 'zset' then value = redis.call('zrange', key, 0, -1, 'withscores')
    else value = redis.call(list[kind], key) end
    dump[#dump + 1] = { key, kind, redis.call('pttl', key), value }
    redis.call('del', key)
end
return dump`)

// comparer compares transitions with a server.
type comparer struct {
	set     *scriptSet
	scripts map[string]*script.Script // by operation
	call    func(t transition, now time.Time) resp.Command

	before, behind []resp.Command          // of the call of a transition
	skips          func(t transition) bool // nil for none

	pools   []*conn.Pool
	batches chan []transition
	workers sync.WaitGroup
	batch   []transition // not yet given to a worker

	mu       sync.Mutex // guards the following
	failures []shortfall
	count    int
}

// shortfall is the report of a transition that failed, after so many moves.
type shortfall struct {
	moves  int
	report func() string
}

// Error is the report.
func (s shortfall) Error() string { return s.report() }

// databases are connections to s with a database each.
func databases(t *testing.T, s *redistest.Server) []*conn.Pool {
	t.Helper()
	var pools []*conn.Pool
	for db := range 3 {
		cfg := s.Config()
		cfg.DB, cfg.Timeout = db+1, time.Minute
		pools = append(pools, redistest.Open(t, cfg))
	}
	return pools
}

// newComparer makes one that compares in the databases of pools.
func newComparer(pools []*conn.Pool, set *scriptSet) *comparer {
	c := &comparer{set: set, scripts: set.operations(), pools: pools, batches: make(chan []transition, 4)}
	c.call = func(t transition, now time.Time) resp.Command {
		return evalsha(c.scripts[t.by.script], t.by.keys, sent(t.by.args, now))
	}
	return c
}

// run compares the transitions that produce gives to visit, and returns those that failed, the shortest way first.
func (c *comparer) run(ctx context.Context, produce func(visit func(transition) bool)) []shortfall {
	for _, s := range append(slices.Collect(maps.Values(c.scripts)), restoreScript, dumpScript) {
		if _, err := c.pools[0].Do(ctx, "SCRIPT", "LOAD", s.Source()); err != nil {
			return []shortfall{{report: err.Error}}
		}
	}
	for _, pool := range c.pools {
		c.workers.Go(func() {
			for batch := range c.batches {
				if err := c.compare(ctx, pool, batch); err != nil {
					c.fail(err)
				}
			}
		})
	}
	produce(c.visit)
	c.batches <- c.batch
	close(c.batches)
	c.workers.Wait()
	slices.SortFunc(c.failures, func(a, b shortfall) int { return a.moves - b.moves })
	return c.failures
}

func (c *comparer) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failed, ok := errors.AsType[shortfall](err)
	if !ok {
		failed = shortfall{report: err.Error}
	}
	c.failures = append(c.failures, failed)
}

func (c *comparer) shortfall(t transition, problem string) shortfall {
	return shortfall{len(t.from.path()), func() string { return c.set.explain(t, problem) }}
}

func (c *comparer) visit(t transition) bool {
	if err := c.set.check(t); err != nil {
		c.fail(c.shortfall(t, "Redisson would not accept this: "+err.Error()+"\n"+indent(t.want())))
		return false
	}
	if t.by.script == "" || c.skips != nil && c.skips(t) {
		return true
	}
	if c.batch = append(c.batch, t); len(c.batch) < 300 {
		return true
	}
	c.batches <- c.batch
	c.batch = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failures) == 0
}

// compare runs a batch, again in two halves if it has gone wrong and has taken so long that times in its states may have come.
func (c *comparer) compare(ctx context.Context, pool *conn.Pool, batch []transition) error {
	begin, half := time.Now(), len(batch)/2
	err := c.compareAtOnce(ctx, pool, batch)
	if err == nil || ctx.Err() != nil || time.Since(begin) < stepTime/2 {
		return err
	}
	if half > 0 {
		if err = c.compare(ctx, pool, batch[:half]); err != nil {
			return err
		}
	}
	return c.compare(ctx, pool, batch[half:])
}

// compareAtOnce reports the first of a batch that goes wrong.
func (c *comparer) compareAtOnce(ctx context.Context, pool *conn.Pool, batch []transition) error {
	var commands []resp.Command
	now := time.Now()
	for _, t := range batch {
		commands = append(append(commands, evalsha(restoreScript, nil, restoring(t, now))), c.before...)
		commands = append(commands, c.call(t, now))
		commands = append(append(commands, c.behind...), evalsha(dumpScript, nil, nil))
	}
	replies, err := pool.SendBatch(ctx, commands)
	if err != nil {
		return err
	}
	each := 3 + len(c.before) + len(c.behind)
	for i, t := range batch {
		if err := replies[each*i].Err(); err != nil {
			return c.shortfall(t, "the state cannot be restored: "+err.Error())
		}
		got, want := c.got(replies[each*i+1+len(c.before)], replies[each*(i+1)-1]), t.want()
		if got != want {
			return c.shortfall(t, fmt.Sprintf("the server has\n%s\nthe model\n%s", indent(got), indent(want)))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count += len(batch)
	return nil
}

// restoring is the ARGV by which restoreScript makes the state before t.
func restoring(t transition, now time.Time) (restore []any) {
	for _, command := range t.from.keys.restore(now) {
		restore = append(append(restore, len(command)), command...)
	}
	return restore
}

func indent(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

func sent(args []any, now time.Time) []any {
	list := make([]any, len(args))
	for i, arg := range args {
		switch n := arg.(type) {
		case span:
			arg = int64(n) * stepMS
		case string:
			arg = absolute(n, now)
		}
		list[i] = arg
	}
	return list
}

// got is compared with transition.want.
func (c *comparer) got(reply, dump resp.Value) string {
	seconds, _ := dump.At(0).At(0).Int()
	micro, _ := dump.At(0).At(1).Int()
	now := time.Unix(seconds, micro*1000)
	text := c.replyText(reply, now) + "\n"
	if err := dump.Err(); err != nil {
		return text + err.Error()
	}
	var keys space
	for i := 1; i < dump.Len(); i++ {
		var k key
		k.name, _ = dump.At(i).At(0).Text()
		k.kind, _ = dump.At(i).At(1).Text()
		left, _ := dump.At(i).At(2).Int()
		k.life = max(steps(left), 0)
		value := dump.At(i).At(3)
		if value.Kind() == resp.Array {
			for e := range value.All() {
				k.parts = append(k.parts, c.text(e, now))
			}
		} else {
			k.parts = []string{c.text(value, now)}
		}
		keys = append(keys, k)
	}
	return text + keys.String()
}

func (c *comparer) text(v resp.Value, now time.Time) string {
	text, _ := v.Text()
	if c.set.values != nil {
		text = c.set.values(text)
	}
	return relative(text, now)
}

// replyText is the text that the function of that name makes of what a model says.
func (c *comparer) replyText(v resp.Value, now time.Time) string {
	if err := v.Err(); err != nil {
		var e resp.Error
		errors.As(err, &e)
		return replyText(failure(e.Class()))
	}
	switch v.Kind() {
	case resp.Null:
		return replyText(nil)
	case resp.Array:
		var list []string
		for e := range v.All() {
			list = append(list, c.replyText(e, now))
		}
		return "[" + strings.Join(list, " ") + "]"
	case resp.Integer:
		n, _ := v.Int()
		if point := relative(strconv.FormatInt(n, 10), now); point[0] == '@' || n > -1000 && n < 1000 {
			return point
		}
		return replyText(steps(n - 500)) // who waits in a queue is told up to 500 ms more than the lease
	case resp.SimpleString:
		return replyText(status(c.text(v, now)))
	}
	return replyText(c.text(v, now))
}

// TestServerScripts compares the scripts of each kind with its model: a sample of the transitions, or all of them where
// LOCKWIRE_EXHAUSTIVE=1 (make exhaustive).
func TestServerScripts(t *testing.T) {
	redistest.Run(t, func(t *testing.T, s *redistest.Server) {
		total, run := 0, 0
		for _, set := range scriptSets {
			t.Run(set.String(), func(t *testing.T) {
				c := newComparer(databases(t, s), set)
				failures := c.run(t.Context(), func(visit func(transition) bool) { produce(t, set, visit) })
				if len(failures) > 0 {
					t.Error(failures[0])
				}
				t.Logf("%d transitions", c.count)
				total, run = total+c.count, run+1
			})
		}
		t.Logf("%d transitions in all", total)
		if total < 1_000_000 && run == len(scriptSets) && os.Getenv(exhaustiveEnv) == "1" && !t.Failed() {
			t.Error("that is less than a million: the models have become poorer")
		}
	})
}

func produce(t *testing.T, set *scriptSet, visit func(transition) bool) {
	if os.Getenv(exhaustiveEnv) == "1" {
		t.Logf("%d states", len(set.explore(visit)))
		return
	}
	sample(t, set, sampled, visit)
}

// sample gives visit n transitions of walks at random.
func sample(t *testing.T, set *scriptSet, n int, visit func(transition) bool) {
	seed, err := strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("%s=%d", seedEnv, seed)
	set.walk(rand.New(rand.NewPCG(seed, 1)), n, visit)
}

// TestScriptSets has a set for each script, and a script for each move.
func TestScriptSets(t *testing.T) {
	for _, set := range scriptSets {
		for _, m := range set.moves {
			if m.script != "" && kinds.All()[set.kind][m.script] == nil {
				t.Errorf("%s: kind %s has no script for %s", set, set.kind, m.script)
			}
		}
	}
	sets := setsByScript()
	for kind, scripts := range kinds.All() {
		for operation, s := range scripts {
			if sets[s.Source()] == nil && kind != kinds.Any && operation != "quit" { // which TestLineLikeTheServer runs
				t.Errorf("no move of a script set runs %s of kind %s", operation, kind)
			}
		}
	}
}

// setsByScript is the sets that run a script, by its source.
func setsByScript() map[string][]*scriptSet {
	all := map[string][]*scriptSet{}
	for _, set := range scriptSets {
		for _, s := range set.operations() {
			all[s.Source()] = append(all[s.Source()], set)
		}
	}
	return all
}
