package faultproxy

import (
	"strings"
	"sync"

	"github.com/lockwire/lockwire/resp"
)

// matcher follows a connection and knows the request for each reply.
type matcher struct {
	mu         sync.Mutex
	waiting    []request
	subscribed bool // a request to subscribe was sent: arrays of messages are pushes also in RESP2
}

// request is a request with a reply due.
type request struct {
	fate Fate
	// confirms is the first word of confirmations of a (un)subscribe request, such as "subscribe", and left their number; 0 is
	// unknown.
	confirms string
	left     int
}

// expect notes a request before sending.
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

// fateOf returns the fate of a value from the server.
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
		// The unsubscription from all channels had an unknown number of confirmations, all seen before this value.
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
