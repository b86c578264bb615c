-- Reentrant lock, force: frees the lock whoever has it.
-- KEYS  1 lock  2 its channel
-- ARGV  1 publish command ('': nobody is told)
-- Returns 1 when the lock was taken, else 0. A key of another type or kind is an error and stays.
local lock, channel = KEYS[1], KEYS[2]
local publish = ARGV[1]

local fields = redis.call('hlen', lock)
if fields == 0 then
    return 0
elseif fields > 1 or not string.match(redis.call('hvals', lock)[1], '^%d+$') then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
redis.call('del', lock)
if publish ~= '' then
    redis.pcall(publish, channel, '0') -- a user who may not publish leaves waiters to look by themselves
end
return 1
