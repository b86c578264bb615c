-- Write lock, undo: takes back an acquire whose outcome its caller does not know, and the word that a writer waits.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 lease of the owner's first hold as a reader
--       5 latch, for an owner that may have further holds: keeps the acquire, and this, from taking effect later
--       6.. leases of the owner's further holds as a reader
-- ARGV  1 lease in ms that the owner's remaining write holds need  2 owner, with ":write" behind  3 publish command
--       4 hold count that the owner had before  5 lifetime of the latch in ms
-- Returns 1 when there was something to take back, else 0; running it again does no harm.
local lock, channel, writers, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local lease, owner, publish, before, lifetime = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'

local waited = redis.call('zrem', writers, owner)
if waited == 1 then
    redis.pcall(publish, channel, '1') -- for the readers that let it go first
end
if latch and redis.call('exists', latch) == 1 then
    return waited
end
if latch then
    redis.call('set', latch, 0, 'px', lifetime)
end
if tonumber(redis.call('hget', lock, owner) or 0) <= before then
    return waited
end
local left, reader = 0, string.sub(owner, 1, -7)
for n = 1, tonumber(redis.call('hget', lock, reader) or 0) do
    left = math.max(left, redis.call('pttl', prefix .. ':' .. reader .. ':rwlock_timeout:' .. n))
end
if before > 0 and lease > 0 then
    redis.call('pexpire', lock, math.max(lease, left))
    redis.call('hset', lock, owner, before)
    return 1
end
redis.call('hdel', lock, owner)
if left > 0 then
    redis.call('hset', lock, 'mode', 'read')
    redis.call('pexpire', lock, left)
else
    redis.call('del', lock)
end
redis.pcall(publish, channel, '1') -- a user who may not publish leaves waiters to look by themselves
return 1
