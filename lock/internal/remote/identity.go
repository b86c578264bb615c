package remote

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock/internal/clock"
	"github.com/lockwire/lockwire/resp"
)

// ErrNoVote means that a server's answer does not count, since the server may have forgotten earlier grants.
var ErrNoVote = errors.New("lock: the server has no vote")

// Identity is a client's knowledge of the process behind its server's address.
type Identity struct {
	server *Server
	now    func() clock.Instant
	asked  atomic.Bool // the server was asked for its identity outside a vote

	mu      sync.Mutex    // guards the following
	runID   string        // "" until known
	changed bool          // not the first process at this address
	moved   bool          // the process was up before its predecessor was last seen: another server, not a restart
	first   clock.Instant // the time of the first sight
	last    clock.Instant // the time of the last sight
	failure error         // why the last vote did not count; nil if it did
}

// NewIdentity returns the identity of s, unknown so far. now is the client's clock.
func NewIdentity(s *Server, now func() clock.Instant) *Identity {
	return &Identity{server: s, now: now}
}

// ID returns the run id of the process last seen; "" until known.
func (d *Identity) ID() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runID
}

// Vouch records an answer of the server to a vote, nil for a vote that counted.
func (d *Identity) Vouch(failure error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failure = failure
}

// Answered records that the server answers again. What it has refused to do, and a server without a vote, stay failures.
func (d *Identity) Answered() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, refused := errors.AsType[resp.Error](d.failure); !refused && !errors.Is(d.failure, ErrNoVote) {
		d.failure = nil
	}
}

// Useful reports whether the last vote counted, as far as known.
func (d *Identity) Useful() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure == nil
}

// Note records the reply to an INFO sent after start, if the reply identifies the server. Note returns the minimum
// time for which the process has been at this address, as far as the client knows. A reply that comes later than one to a later INFO brings no
// former process back.
func (d *Identity) Note(info resp.Value, start clock.Instant) (age time.Duration, ok bool) {
	runID, age, ok := ParseServerInfo(info)
	if !ok {
		return 0, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch other := runID != d.runID; {
	case start.Time.Before(d.last.Time) && other: // perhaps gone by now
		return 0, true
	case start.Time.Before(d.last.Time):
		start = d.last
	case other:
		d.changed = d.runID != ""
		d.moved = d.changed && age >= d.last.AtLeast(start)
		d.runID, d.first = runID, start
	}
	d.last = start
	if d.changed {
		age = min(age, d.first.AtLeast(start))
	}
	return age, true
}

// ParseServerInfo parses the run id and the minimum uptime in a reply to INFO. The reported seconds are the
// difference of two times, each rounded down.
func ParseServerInfo(info resp.Value) (runID string, age time.Duration, ok bool) {
	text, err := info.Text()
	if err != nil {
		return "", 0, false
	}
	runID = InfoLine(text, "run_id")
	seconds, err := strconv.ParseInt(InfoLine(text, "uptime_in_seconds"), 10, 32)
	return runID, time.Duration(max(0, seconds-1)) * time.Second, runID != "" && err == nil && seconds >= 0
}

// InfoLine returns the value of a line in a text of INFO; "" without such a line.
func InfoLine(text, name string) string {
	_, value, _ := strings.Cut("\n"+text, "\n"+name+":")
	value, _, _ = strings.Cut(value, "\n")
	return strings.TrimSpace(value)
}

// Text returns the text of a reply.
func Text(v resp.Value, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return v.Text()
}

// Unasked reports whether Ask asks.
func (d *Identity) Unasked() bool { return d.ID() == "" && !d.asked.Load() }

// Ask asks the server for an unknown identity, once.
func (d *Identity) Ask(ctx context.Context) {
	if d.ID() != "" || d.asked.Swap(true) {
		return
	}
	start := d.now()
	if v, err := d.server.Doer.Send(Patient(ctx), resp.Cmd("INFO", "server")); err == nil {
		d.Note(v, start)
	}
}

// CheckVote returns nil if the server certainly remembers all earlier grants that still count. info came with a grant,
// and neither is older than start.
func (d *Identity) CheckVote(ctx context.Context, info resp.Value, start clock.Instant, quarantine time.Duration) error {
	age, ok := d.Note(info, start)
	if !ok {
		return fmt.Errorf("%w: INFO lacks its run_id or its uptime", ErrNoVote)
	}
	if age-start.Elapsed(d.now()) >= quarantine {
		return nil
	}
	d.mu.Lock()
	moved := d.moved
	d.mu.Unlock()
	if !moved && d.durable(ctx) {
		return nil
	}
	return fmt.Errorf("%w: it started less than %v ago", ErrNoVote, age+2*time.Second)
}

// durable reports whether the server writes each grant to disk before the reply.
func (d *Identity) durable(ctx context.Context) bool {
	for name, want := range map[string]string{"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"} {
		if value, err := Setting(ctx, d.server.Doer, name); err != nil || value != want {
			return false
		}
	}
	return true
}

// Setting returns the value of a setting of a server; "" if the server does not have the setting.
func Setting(ctx context.Context, server conn.Doer, name string) (value string, err error) {
	v, err := server.Send(Patient(ctx), resp.Cmd("CONFIG", "GET", name))
	if err != nil {
		return "", err
	}
	pairs, err := v.Pairs()
	for _, setting := range pairs {
		value, _ = setting.Text()
	}
	return value, err
}
