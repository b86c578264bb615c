package conn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockwire/lockwire/resp"
)

// Succession is who serves as a master, and who may take its place, in the words of those who decide about that: the sentinels, or
// the other nodes of a cluster. What the master itself thinks of it does not count, as it may have been replaced, or be cut off.
type Succession struct {
	// Master is what the server calls itself: its run_id with sentinels, and the id of its node in a cluster. "" if that is not
	// known.
	Master string
	Addr   string // where the master is dialled
	// Replicas is how many there are that could take its place now, as far as those know who were asked. One that is configured
	// never to do so counts too.
	Replicas int
	// Away is how many more are known, which may be back at any moment: with sentinels those that are down, have not answered for
	// some seconds, or have not been seen to follow the master yet. A cluster does not say.
	Away int
	// Bare says that nobody has ever told of a replica of this master, which was the master from the beginning.
	Bare  bool
	Asked time.Time // before the question was sent
}

// errMinority says that a sentinel does not reach most of the others: it may have been left behind.
var errMinority = errors.New("the sentinel does not reach a majority")

// Succession returns what a sentinel says that was asked no sooner than since, and if since is zero what one has said last; one
// that does not reach a majority of the sentinels is not believed. The key does not matter. A Pool without sentinels has nobody
// to ask: the Succession is zero but for Bare.
func (p *Pool) Succession(ctx context.Context, key string, since time.Time) (Succession, error) {
	if p.finder == nil {
		return Succession{Addr: p.cfg.Addr, Bare: true}, nil
	}
	return p.finder.succession(ctx, since)
}

// heirs is what the sentinels have said last about the replicas.
type heirs struct {
	asking chan struct{} // holds a token while somebody asks

	mu    sync.Mutex // guards the following
	last  Succession
	first string // the master when they were asked first
	had   bool   // they have told of a replica since
}

// known returns what has been said last, if it was said of the server at addr, in answer to a question put no sooner than since.
func (h *heirs) known(addr string, since time.Time) (Succession, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, !h.last.Asked.IsZero() && h.last.Addr == addr && !h.last.Asked.Before(since)
}

// note keeps what a sentinel has said.
func (h *heirs) note(s Succession) Succession {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.Asked.IsZero() {
		h.first = s.Master
	}
	h.had = h.had || s.Replicas > 0
	s.Bare = !h.had && s.Master == h.first
	h.last = s
	return s
}

func (f *finder) succession(ctx context.Context, since time.Time) (Succession, error) {
	m, _, _ := f.current()
	if s, ok := f.heirs.known(m.addr, since); ok {
		return s, nil
	}
	select {
	case f.heirs.asking <- struct{}{}:
		defer func() { <-f.heirs.asking }()
	case <-ctx.Done():
		return Succession{}, f.failure(ended(ctx))
	}
	if s, ok := f.heirs.known(m.addr, since); ok {
		return s, nil
	}
	err := error(errUnknownMaster)
	for _, addr := range f.list() {
		var s Succession
		if s, err = f.askHeirs(ctx, addr); err == nil {
			return f.heirs.note(s), nil
		}
		if ctx.Err() != nil {
			break
		}
		f.demote(addr)
	}
	return Succession{}, f.failure(fmt.Errorf("asking the sentinels for replicas: %w", err))
}

// refreshHeirs asks again what somebody wants to know of the replicas.
func (f *finder) refreshHeirs(ctx context.Context) {
	f.heirs.mu.Lock()
	wanted := !f.heirs.last.Asked.IsZero()
	f.heirs.mu.Unlock()
	if wanted {
		_, _ = f.succession(ctx, time.Now()) // whoever needs to know asks again
	}
}

// askHeirs asks one sentinel.
func (f *finder) askHeirs(ctx context.Context, addr string) (Succession, error) {
	s := Succession{Asked: time.Now()}
	name := f.cfg.Sentinel.Master
	replies, err := f.put(ctx, addr,
		resp.Cmd("SENTINEL", "master", name), resp.Cmd("SENTINEL", "replicas", name), resp.Cmd("SENTINEL", "ckquorum", name))
	if err != nil {
		return s, err
	}
	for _, v := range replies {
		if err := v.Err(); err != nil {
			if strings.HasPrefix(err.Error(), "NOQUORUM") {
				return s, errMinority
			}
			return s, err
		}
	}
	s.Addr = f.cfg.Sentinel.mapped(announcedIn(replies[0]))
	s.Master = fieldOf(replies[0], "runid")
	for replica := range replies[1].All() {
		if eligible(replica) {
			s.Replicas++
		} else {
			s.Away++
		}
	}
	return s, nil
}

// muteFor is after how long without an answer to PING sentinels pass a replica over, in ms. It is a constant of theirs.
const muteFor = 5000

// eligible reports whether a sentinel, going by what it says of a replica, could make that the master. It makes none the master that
// is down, or mute; and one that it has not seen to follow the master since it knows it has offset 0, so that others go first.
func eligible(replica resp.Value) bool {
	flags := "," + fieldOf(replica, "flags") + ","
	mute, err := strconv.Atoi(fieldOf(replica, "last-ok-ping-reply"))
	return !strings.Contains(flags, "_down,") && !strings.Contains(flags, ",disconnected,") && (err != nil || mute <= muteFor) &&
		fieldOf(replica, "slave-repl-offset") != "0"
}

// fieldOf returns one of the fields by which a sentinel describes a server, or "".
func fieldOf(v resp.Value, field string) string {
	pairs, err := v.Pairs()
	if err != nil {
		return ""
	}
	for name, value := range pairs {
		if text, _ := name.Text(); text == field {
			text, _ := value.Text()
			return text
		}
	}
	return ""
}
