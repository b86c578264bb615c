package fakeredis

import (
	"maps"
	"slices"
)

func pubsubCommands() []command {
	const flag = onConn | notScript | subscribed
	return []command{
		{name: "subscribe", arity: -2, flags: flag, run: func(x *call) any { return subscribe(x, x.s.channels, &x.c.channels) }},
		{name: "psubscribe", arity: -2, flags: flag, run: func(x *call) any { return subscribe(x, x.s.patterns, &x.c.patterns) }},
		{name: "ssubscribe", arity: -2, flags: flag, run: func(x *call) any { return subscribe(x, x.s.shards, &x.c.shards) }},
		{name: "unsubscribe", arity: -1, flags: flag, run: func(x *call) any { return unsubscribe(x, x.s.channels, &x.c.channels) }},
		{name: "punsubscribe", arity: -1, flags: flag, run: func(x *call) any { return unsubscribe(x, x.s.patterns, &x.c.patterns) }},
		{name: "sunsubscribe", arity: -1, flags: flag, run: func(x *call) any { return unsubscribe(x, x.s.shards, &x.c.shards) }},
		{name: "publish", arity: 3, flags: onWrite, run: func(x *call) any { return x.s.publishAll(x.args[1], x.args[2]) }},
		{name: "spublish", arity: 3, flags: onWrite, run: func(x *call) any { return x.s.spublish(x.args[1], x.args[2]) }},
		{name: "pubsub|channels", arity: -2, run: func(x *call) any { return activeChannels(x, x.s.channels) }},
		{name: "pubsub|shardchannels", arity: -2, run: func(x *call) any { return activeChannels(x, x.s.shards) }},
		{name: "pubsub|numsub", arity: -2, run: func(x *call) any { return numSub(x, x.s.channels) }},
		{name: "pubsub|shardnumsub", arity: -2, run: func(x *call) any { return numSub(x, x.s.shards) }},
		{name: "pubsub|numpat", arity: 2, run: func(x *call) any { return len(x.s.patterns) }},
	}
}

// subscriptions is the count in confirmations: channels and patterns, but not shard channels.
func (c *conn) subscriptions() int { return len(c.channels) + len(c.patterns) }

// count is the number in a confirmation about own, a list of c.
func (c *conn) count(own *[]string) int {
	if own == &c.shards {
		return len(c.shards)
	}
	return c.subscriptions()
}

func subscribe(x *call, all map[string][]*conn, own *[]string) any {
	var replies several
	for _, name := range x.args[1:] {
		if !slices.Contains(*own, name) {
			*own = append(*own, name)
			all[name] = append(all[name], x.c)
		}
		replies = append(replies, push{x.cmd.name, name, x.c.count(own)})
	}
	return replies
}

func unsubscribe(x *call, all map[string][]*conn, own *[]string) any {
	names := x.args[1:]
	if len(names) == 0 {
		names = slices.Clone(*own)
	}
	if len(names) == 0 {
		return push{x.cmd.name, nil, x.c.count(own)}
	}
	var replies several
	for _, name := range names {
		x.c.leave(all, own, name)
		replies = append(replies, push{x.cmd.name, name, x.c.count(own)})
	}
	return replies
}

func (c *conn) leave(all map[string][]*conn, own *[]string, name string) {
	*own = slices.DeleteFunc(*own, func(n string) bool { return n == name })
	all[name] = slices.DeleteFunc(all[name], func(o *conn) bool { return o == c })
	if len(all[name]) == 0 {
		delete(all, name)
	}
}

func (c *conn) unsubscribeAll() {
	for len(c.channels) > 0 {
		c.leave(c.s.channels, &c.channels, c.channels[0])
	}
	for len(c.patterns) > 0 {
		c.leave(c.s.patterns, &c.patterns, c.patterns[0])
	}
	for len(c.shards) > 0 {
		c.leave(c.s.shards, &c.shards, c.shards[0])
	}
}

// Message is a published message, received or not.
type Message struct {
	Channel, Payload string
	Shard            bool // by SPUBLISH
	Receivers        int
}

// Messages returns the messages published so far, by commands and by scripts, in order.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

func (s *Server) publish(channel, payload string) any {
	n := s.publishHere(channel, payload)
	s.noteMessage(Message{channel, payload, false, n})
	return n
}

// publishHere sends a message to the clients of this server, without a record.
func (s *Server) publishHere(channel, payload string) int {
	n := s.deliver(s.channels[channel], "message", channel, payload)
	for _, pattern := range slices.Sorted(maps.Keys(s.patterns)) {
		if match(pattern, channel) {
			n += s.deliver(s.patterns[pattern], "pmessage", pattern, channel, payload)
		}
	}
	return n
}

// publishAll is publish at all nodes of a cluster, after the delays of the network.
func (s *Server) publishAll(channel, payload string) any {
	if s.cluster != nil {
		s.cluster.all(func(to *cluster) { to.s.publish(channel, payload) })
	}
	return s.publish(channel, payload)
}

func (s *Server) spublish(channel, payload string) any {
	n := s.deliver(s.shards[channel], "smessage", channel, payload)
	s.noteMessage(Message{channel, payload, true, n})
	return n
}

func (s *Server) noteMessage(m Message) {
	s.messages = append(s.messages, m)
	if s.network != nil && s.cluster == nil {
		s.published = append(s.published, m)
	}
}

func (s *Server) deliver(to []*conn, words ...any) int {
	for _, c := range to {
		c.writeLocked(appendReply(nil, push(words), c.proto))
	}
	return len(to)
}

func activeChannels(x *call, all map[string][]*conn) any {
	if len(x.args) > 3 {
		return Err("ERR unknown subcommand or wrong number of arguments for '" + x.args[1] + "'. Try PUBSUB HELP.")
	}
	list := []string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(x.args) == 2 || match(x.args[2], name) {
			list = append(list, name)
		}
	}
	return list
}

func numSub(x *call, all map[string][]*conn) any {
	list := []any{}
	for _, name := range x.args[2:] {
		list = append(list, name, len(all[name]))
	}
	return list
}

// Subscribers returns how many connections have subscribed to the channel, as an ordinary or a shard channel.
func (s *Server) Subscribers(channel string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.channels[channel]) + len(s.shards[channel])
}

// Unsubscribe ends the subscriptions to the shard channel and tells the subscribers, as a cluster node does on giving a slot
// away.
func (s *Server) Unsubscribe(shardChannel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Clone(s.shards[shardChannel]) {
		c.leave(s.shards, &c.shards, shardChannel)
		c.writeLocked(appendReply(nil, push{"sunsubscribe", shardChannel, len(c.shards)}, c.proto))
	}
	s.tickLocked()
}
