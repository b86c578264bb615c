package conn_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/internal/fakeredis"
	"github.com/lockwire/lockwire/resp"
)

// A replica counts in Replicas if a sentinel could promote it, and otherwise in Away.
func TestSuccession(t *testing.T) {
	for name, x := range map[string]struct {
		fields []string
		counts bool
	}{
		"well":                     {[]string{"flags", "slave", "last-ok-ping-reply", "900", "slave-repl-offset", "14"}, true},
		"never to be promoted":     {[]string{"flags", "slave", "last-ok-ping-reply", "0", "slave-repl-offset", "14", "slave-priority", "0"}, true},
		"promoted, not yet master": {[]string{"flags", "slave,promoted", "role-reported", "master", "slave-repl-offset", "14"}, true},
		"of which little is said":  {[]string{"flags", "slave"}, true},
		"down":                     {[]string{"flags", "s_down,slave", "last-ok-ping-reply", "900", "slave-repl-offset", "14"}, false},
		"down to the most":         {[]string{"flags", "o_down,slave", "slave-repl-offset", "14"}, false},
		"not connected":            {[]string{"flags", "slave,disconnected", "slave-repl-offset", "14"}, false},
		"mute":                     {[]string{"flags", "slave", "last-ok-ping-reply", "5001", "slave-repl-offset", "14"}, false},
		"not seen to follow":       {[]string{"flags", "slave", "last-ok-ping-reply", "900", "slave-repl-offset", "0"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.replicas = []string{bulks(x.fields...)}
				p, err := conn.Open(t.Context(), f.config())
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				want := conn.Succession{Addr: serverA, Away: 1}
				if x.counts {
					want.Replicas, want.Away = 1, 0
				}
				s, err := p.Succession(t.Context(), "", time.Time{})
				if err != nil || s.Addr != want.Addr || s.Replicas != want.Replicas || s.Away != want.Away {
					t.Errorf("Succession() = %+v, %v, want %+v", s, err, want)
				}
			})
		})
	}
}

// The Pool refreshes the Succession regularly, and at once for a caller that needs a fresh answer. A sentinel without
// a majority does not count, and neither does a sentinel cut off from the master.
func TestSuccessionIsAskedAgain(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		p, err := conn.Open(t.Context(), f.config())
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		known := func(since time.Time) int {
			t.Helper()
			s, err := p.Succession(t.Context(), "", since)
			if err != nil {
				t.Fatal(err)
			}
			return s.Replicas
		}
		if n := known(time.Time{}); n != 0 {
			t.Errorf("%d replicas where there is none", n)
		}
		add := func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.replicas = append(f.replicas, bulks("flags", "slave"))
		}
		add()
		time.Sleep(time.Millisecond)
		if n := known(time.Time{}); n != 0 {
			t.Errorf("%d replicas, so it was asked again", n)
		}
		if n := known(time.Now()); n != 1 {
			t.Errorf("asked anew: %d replicas, want 1", n)
		}
		add()
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if n := known(time.Time{}); n != 2 {
			t.Errorf("some time later: %d replicas, want 2", n)
		}
		f.mu.Lock()
		f.minority = true
		f.mu.Unlock()
		time.Sleep(time.Millisecond)
		if s, err := p.Succession(t.Context(), "", time.Now()); err == nil {
			t.Errorf("sentinels that were left behind: %+v", s)
		}
		for _, flags := range []string{"master", "s_down,master", "s_down,o_down,master", "master,disconnected"} {
			f.mu.Lock()
			f.minority, f.flags = false, flags
			f.mu.Unlock()
			time.Sleep(time.Millisecond)
			if s, err := p.Succession(t.Context(), "", time.Now()); (err == nil) != (flags == "master") {
				t.Errorf("sentinels that find the master %s: %+v, %v", flags, s, err)
			}
		}
	})
}

// While the new master cannot be reached, sentinels do not vouch for the former one, not even a sentinel left behind.
func TestSuccessionOfAFormerMaster(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.replicas = []string{bulks("flags", "slave", "ip", "10.0.0.2", "port", "6379"), bulks("flags", "s_down,slave", "ip", "10.0.0.3", "port", "6379")}
		p := openFleet(t, f.config())
		defer p.Close()
		ask := func() (conn.Succession, error) {
			time.Sleep(time.Millisecond)
			return p.Succession(t.Context(), "", time.Now())
		}
		if s, err := ask(); err != nil || s.Addr != serverA || s.Replicas != 1 || s.Away != 1 || !slices.Equal(s.AwayAddrs, []string{serverC}) {
			t.Fatalf("Succession() = %+v, %v", s, err)
		}
		f.nodes[serverB].Unreachable(true)
		f.tell(serverB, 2)
		if s, err := ask(); err == nil {
			t.Errorf("when all sentinels name another master: %+v", s)
		}
		f.tell(serverA, 1, sentinelC)
		if s, err := ask(); err == nil {
			t.Errorf("when all sentinels but one do: %+v", s)
		}
	})
}

// An answer of a former master to WAIT does not count once another master is known: the new master may have fewer
// replicas.
func TestWaitOfAFormerMaster(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.nodes[serverA].Intercept(func(cmd fakeredis.Cmd) fakeredis.Action {
			if cmd.Name == "WAIT" {
				return fakeredis.Delay(100*time.Millisecond, fakeredis.Reply(":1\r\n"))
			}
			return f.serve(serverA, cmd)
		})
		p := openFleet(t, f.config())
		defer p.Close()
		write := func() error {
			_, err := p.SendBatch(t.Context(), []resp.Command{resp.Cmd("SET", "key", "value"), resp.Cmd("WAIT", 1, 200)})
			return err
		}
		if err := write(); err != nil {
			t.Errorf("SendBatch() = %v", err)
		}
		time.AfterFunc(50*time.Millisecond, func() {
			f.promote(serverB)
			f.tell(serverB, 2)
			f.announce(serverA, serverB)
		})
		if err := write(); !errors.Is(err, conn.ErrUncertain) || errors.Is(err, conn.ErrClosed) {
			t.Errorf("SendBatch() answered by a former master = %v", err)
		}
		if n := p.Stats().Switches; n != 1 {
			t.Errorf("%d switches, want 1", n)
		}
	})
}
