-- Read lock, force: frees the lock if readers have it, whoever they are.
-- KEYS  1 lock  2 its channel  3 writers that wait
-- ARGV  1 publish command
-- Returns 1 when readers had the lock, else 0. A key of another type or kind is an error and stays.
local lock, channel = KEYS[1], KEYS[2]
local publish = ARGV[1]

local mode = redis.call('hget', lock, 'mode')
if not mode and redis.call('exists', lock) == 1 then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
elseif mode ~= 'read' then
    return 0
end
redis.call('del', lock) -- the leases of readers end by themselves
redis.pcall(publish, channel, '0') -- a user who may not publish leaves waiters to look by themselves
return 1
