-- Plain lock, force: frees the lock whoever has it.
-- KEYS  1 lock  2 its channel, which is not used
-- Returns 1 when the lock was taken, else 0. A key of another type or kind is an error and stays.
local lock = KEYS[1]

local holder = redis.call('get', lock)
if not holder then
    return 0
elseif string.match(holder, '^%-?%d+$') then -- a semaphore, or a countdown latch
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
return redis.call('del', lock)
