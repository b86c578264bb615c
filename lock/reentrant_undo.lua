-- Reentrant lock, undo: takes back an acquire whose outcome its caller does not know.
-- KEYS  1 lock  2 its channel
--       3 latch, for an owner that may have further holds: keeps the acquire, and this, from taking effect later
-- ARGV  1 lease in ms to go back to when holds remain  2 owner  3 publish command ('': nobody is told)
--       4 hold count that the owner had before  5 lifetime of the latch in ms
-- Returns 1 when there was something to take back, else 0; running it again does no harm.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local lease, owner, publish, before, lifetime = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]

if latch and redis.call('exists', latch) == 1 then
    return 0
end
if latch then
    redis.call('set', latch, 0, 'px', lifetime)
end
local count = tonumber(redis.call('hget', lock, owner) or 0)
if count <= before then
    return 0
end
if before > 0 and tonumber(lease) > 0 then
    redis.call('hset', lock, owner, before)
    redis.call('pexpire', lock, lease)
    return 1
end
redis.call('del', lock)
if publish ~= '' then
    redis.pcall(publish, channel, '0') -- a user who may not publish leaves waiters to look by themselves
end
return 1
