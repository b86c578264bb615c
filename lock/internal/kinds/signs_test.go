package kinds

import "testing"

// What tells of a lock leads back to its name.
func TestReadSign(t *testing.T) {
	const id = "0dc35a35-0f06-4653-95dc-3853eb6e9b38"
	for _, name := range []string{"job", "a:b", "{tag}x", "x{tag}", "job:" + id[:35], "a b", "lockwire_nightly", "redisson_job"} {
		for _, c := range []struct {
			channel, payload string
			want             Sign
		}{
			{"__keyspace@3__:" + name, "hincrby", Written},
			{"__keyspace@3__:" + name, "del", Deleted},
			{"__keyspace@3__:" + name, "expired", TimedOut},
			{"__keyspace@3__:" + name, "evicted", Evicted},
			{"__keyspace@3__:" + name, "expire", Nothing},
			{"__keyspace@0__:" + name, "del", Nothing},
			{"__keyspace@3__:" + string(AppendLatch(nil, name)) + "0123456789abcdef", "set", Released},
			{"__keyspace@3__:" + string(AppendLatch(nil, name)) + "0123456789abcdef", "del", Nothing},
			{"__keyspace@3__:" + tokenKey(name), "set", Nothing},
			{"__keyspace@3__:" + prefixName(linePrefix, name), "zadd", Nothing},
			{prefixName(channelPrefix, name), "0", Woken},
			{prefixName(channelPrefix, name) + ":" + id, "0", Woken},
			{prefixName(channelPrefix, name) + ":" + id + ":7", "0", Woken},
			{prefixName(readWritePrefix, name), "0", Woken},
			{prefixName(semaphorePrefix, name), "2", Woken},
			{ForcedChannel, name, Freed},
			{"news", name, Nothing},
		} {
			got, sign := ReadSign(3, c.channel, c.payload)
			if sign != c.want || sign != Nothing && got != name {
				t.Errorf("ReadSign(%q, %q) = %q, %v, want %q, %v", c.channel, c.payload, got, sign, name, c.want)
			}
		}
	}
}
