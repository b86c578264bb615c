package faultproxy

import (
	"strings"
	"sync"

	"github.com/lockwire/lockwire/resp"
)

// matcher follows one connection and tells which request a value from the server answers.
type matcher struct {
	mu         sync.Mutex
	waiting    []request
	subscribed bool // a request to subscribe was sent: arrays of messages are pushes also in RESP2
}

// request is one whose reply is due.
type request struct {
	fate Fate
	// confirms is how a (un)subscribe request begins its confirmations, such as "subscribe", and left how many are
	// due; 0 is not known.
	confirms string
	left     int
}

// expect notes a request before it is sent.
func (m *matcher) expect(cmd []string, fate Fate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	req := request{fate: fate}
	switch name := strings.ToLower(cmd[0]); name {
	case "subscribe", "psubscribe", "ssubscribe":
		m.subscribed = true
		req.confirms, req.left = name, len(cmd)-1
	case "unsubscribe", "punsubscribe", "sunsubscribe":
		req.confirms, req.left = name, len(cmd)-1
	}
	m.waiting = append(m.waiting, req)
}

// fateOf returns what is to become of a value from the server.
func (m *matcher) fateOf(v resp.Value) Fate {
	m.mu.Lock()
	defer m.mu.Unlock()
	word := firstWord(v)
	push := v.Kind() == resp.Push || m.subscribed && (isMessage(word) || word == "sunsubscribe")
	for len(m.waiting) > 0 {
		req := &m.waiting[0]
		switch {
		case req.confirms != "" && word == req.confirms:
			if req.left == 1 {
				return m.popLocked()
			}
			req.left = max(req.left-1, 0)
			return req.fate
		case push:
			return Deliver
		case req.confirms == "" || req.left > 0:
			return m.popLocked() // the reply, or an error in the confirmations' stead
		}
		// To leave all channels had an unknown number of confirmations, and this is none.
		m.waiting = m.waiting[1:]
	}
	return Deliver
}

func (m *matcher) popLocked() Fate {
	fate := m.waiting[0].fate
	m.waiting = m.waiting[1:]
	return fate
}

// firstWord is the first element of an array or a push.
func firstWord(v resp.Value) string {
	if k := v.Kind(); k != resp.Array && k != resp.Push || v.Len() == 0 {
		return ""
	}
	word, _ := v.At(0).Text()
	return word
}

func isMessage(word string) bool {
	return word == "message" || word == "pmessage" || word == "smessage"
}
