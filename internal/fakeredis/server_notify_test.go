package fakeredis_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// listening subscribes another client of each server to the events about keys.
func (b *both) listening(classes string) (fake, real *client) {
	b.compare("CONFIG", "SET", "notify-keyspace-events", classes)
	b.compare("CONFIG", "GET", "notify-keyspace-events")
	fake, real = dial(b.t, b.srv), dialReal(b.t, b.redis)
	for _, c := range []*client{fake, real} {
		c.do("PSUBSCRIBE", "__key*", "end")
		c.read()
	}
	return fake, real
}

// events returns what the client gets until a message on the channel "end".
func (c *client) events() (list []string) {
	for {
		raw := c.read()
		if strings.Contains(raw, "\r\nend\r\n") {
			return list
		}
		list = append(list, raw)
	}
}

// The fake and a server publish the same about each command, but for those on lists and sets.
func TestKeyspaceEvents(t *testing.T) {
	against(t, func(b *both) {
		fake, real := b.listening("KEg$hzx")
		beside := dialReal(b.t, b.redis) // the others may be in a transaction
		r := rand.New(rand.NewPCG(1, 0))
		said := 0
		for range 4000 {
			args := randomCommand(r)
			b.compare(args...)
			b.srv.Do("PUBLISH", "end", "")
			beside.do("PUBLISH", "end", "")
			fakes, reals := fake.events(), real.events()
			if !slices.Equal(fakes, reals) {
				b.t.Fatalf("%q:\nfake %q\nreal %q", args, fakes, reals)
			}
			said += len(reals)
		}
		if said < 1000 {
			b.t.Errorf("%d events compared", said)
		}
	})
}

func TestKeyspaceEventsOfExpiry(t *testing.T) {
	against(t, func(b *both) {
		fake, real := b.listening("KA")
		for _, line := range []string{"SET a b PX 60", "HSET h f v", "PEXPIRE h 50", "SET e x EX 9 NX", "HINCRBY n f 1"} {
			b.compare(words(line)...)
		}
		for _, c := range []*client{b.fake, b.real} {
			c.do("BLPOP", "none", "0.4") // keys expire meanwhile, unasked
			c.do("PUBLISH", "end", "")
		}
		fakes, reals := fake.events(), real.events()
		slices.Sort(fakes)
		slices.Sort(reals) // a server finds keys that have expired in any order
		if !slices.Equal(fakes, reals) {
			b.t.Errorf("fake %q\nreal %q", fakes, reals)
		}
	})
}

func TestKeyspaceEventLetters(t *testing.T) {
	against(t, func(b *both) {
		for _, letters := range []string{"", "A", "KEA", "K", "Kgx$h", "AKEmn", "Kn", "q", "g$lshzxetdK", "Ex"} {
			b.compare("CONFIG", "SET", "notify-keyspace-events", letters)
			b.compare("CONFIG", "GET", "notify-keyspace-*")
		}
		b.compare("CONFIG", "GET", "nothing-of-that-name")
	})
}
