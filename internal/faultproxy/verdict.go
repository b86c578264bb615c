package faultproxy

import (
	"slices"
	"strings"
	"time"
)

// Verdict is the decision about a request. The zero Verdict delivers the request and its reply.
type Verdict struct {
	Fate  Fate
	Delay time.Duration // before the delivery; later pieces of the connection wait too
}

// Fate is how far a request and its reply come.
type Fate uint8

const (
	Deliver   Fate = iota // both arrive
	LoseReply             // the request arrives, the reply is swallowed
	Swallow               // the request is swallowed, so no reply comes
	CutBefore             // the connection is cut in the request's stead
	CutAfter              // the request arrives; when it is answered the connection is cut in the reply's stead
)

// judge counts a request and decides about its fate.
func (p *Proxy) judge(cmd []string) Verdict {
	v := p.ask(cmd)
	name := strings.ToUpper(cmd[0])
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[name]++
	v.Delay += p.delays[name]
	if i := slices.Index(p.drops[name], p.seen[name]); i >= 0 {
		p.drops[name] = slices.Delete(p.drops[name], i, i+1)
		v.Fate = max(v.Fate, LoseReply)
	}
	return v
}

func (p *Proxy) ask(cmd []string) Verdict {
	p.hookMu.Lock()
	defer p.hookMu.Unlock()
	if p.hook == nil {
		return Verdict{}
	}
	return p.hook(cmd)
}

func (p *Proxy) countLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost++
}
