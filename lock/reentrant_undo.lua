-- Reentrant lock, undo: takes back an acquire whose outcome its caller does not know.
-- KEYS  1 lock  2 its channel
-- ARGV  1 lease in ms to go back to when holds remain  2 owner  3 publish command
--       4 hold count that the owner had before
-- Returns 1 when there was something to take back, else 0; running it again does no harm.
local lock, channel = KEYS[1], KEYS[2]
local lease, owner, publish, before = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

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
redis.call(publish, channel, '0')
return 1
