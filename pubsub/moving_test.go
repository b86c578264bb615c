package pubsub

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// moving is a cluster node whose slots leave and come back, each with one shard channel. Like Redis it tells then that the subscription
// has ended, and answers requests about the channel with an error.
type moving struct {
	t       *testing.T
	s       *Subscriber
	rng     *rand.Rand
	away    map[string]bool
	held    map[string]bool
	asked   []resp.Command // not treated yet
	answers []string       // not delivered yet
	subs    []*Subscription
}

func (m *moving) name() string { return fmt.Sprint("channel", m.rng.IntN(3)) }

// write lets the Subscriber send what is due within a minute.
func (m *moving) write() {
	cmds, _, err := m.s.parts[""].next(time.Now().Add(time.Minute))
	if err != nil {
		m.t.Fatal(err)
	}
	m.asked = append(m.asked, cmds...)
}

// treat answers a request.
func (m *moving) treat() {
	if len(m.asked) == 0 {
		return
	}
	cmd := m.asked[0]
	m.asked = m.asked[1:]
	if cmd.Name() == "PING" {
		m.answers = append(m.answers, "+PONG\r\n")
		return
	}
	var name string
	for arg := range cmd.Args() {
		name = arg
	}
	subscribes := cmd.Name() == "SSUBSCRIBE"
	switch {
	case m.away[name] && m.rng.IntN(4) == 0:
		m.answers = append(m.answers, "-CLUSTERDOWN Hash slot not served\r\n")
	case m.away[name]:
		m.answers = append(m.answers, "-MOVED 1 127.0.0.1:6381\r\n")
	case subscribes:
		m.held[name] = true
		m.answers = append(m.answers, push('>', "ssubscribe", name, "1"))
	default:
		delete(m.held, name)
		m.answers = append(m.answers, push('>', "sunsubscribe", name, "0"))
	}
}

// deliver hands the oldest answer to the Subscriber.
func (m *moving) deliver() {
	if len(m.answers) == 0 {
		return
	}
	raw := m.answers[0]
	m.answers = m.answers[1:]
	if err := m.s.parts[""].dispatch(decode(m.t, raw)); err != nil {
		m.t.Fatalf("dispatch of %q: %v", raw, err)
	}
}

// step does one thing at random.
func (m *moving) step() {
	switch m.rng.IntN(6) {
	case 0:
		sub, err := m.s.add(shard, []string{m.name()}, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		m.subs = append(m.subs, sub)
	case 1:
		if len(m.subs) > 0 {
			i := m.rng.IntN(len(m.subs))
			m.subs[i].Close()
			m.subs = append(m.subs[:i], m.subs[i+1:]...)
		}
	case 2:
		m.write()
	case 3:
		name := m.name()
		if m.away[name] = !m.away[name]; m.held[name] && m.away[name] {
			delete(m.held, name)
			m.answers = append(m.answers, push('>', "sunsubscribe", name, "0"))
		}
	case 4:
		m.treat()
	case 5:
		m.deliver()
	}
}

// Slots leave and come back while channels are subscribed and unsubscribed. Then the server has the channels that are wanted, and no others.
func TestMovingSlots(t *testing.T) {
	for seed := range uint64(3000) {
		s := unattended(Config{PingInterval: -1})
		m := &moving{t: t, s: s, rng: rand.New(rand.NewPCG(seed, 1)), away: map[string]bool{}, held: map[string]bool{}}
		for range 60 {
			m.step()
		}
		clear(m.away)
		for range 100 {
			m.write()
			m.treat()
			m.deliver()
		}
		wanted := map[string]bool{}
		for _, sub := range m.subs {
			wanted[sub.channels[0].name] = true
			if sub.missing != 0 {
				t.Errorf("seed %d: %s waits for its channel", seed, sub.channels[0].name)
			}
		}
		for name := range m.held {
			if !wanted[name] {
				t.Errorf("seed %d: the server goes on to send the messages of %s", seed, name)
			}
		}
		for name := range wanted {
			if !m.held[name] {
				t.Errorf("seed %d: the server does not have %s", seed, name)
			}
		}
		for _, sub := range m.subs {
			sub.Close()
		}
		if t.Failed() {
			return
		}
	}
}
