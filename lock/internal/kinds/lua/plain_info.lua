-- Plain lock, info: what there is to see of the lock at one instant.
-- KEYS  1 lock  2 its channel, which is not used
-- Returns the remaining lease in ms (-1: none), the owner, and 1 for its one hold; -2 alone if it is not locked.
local lock = KEYS[1]

local holder = redis.call('get', lock)
if not holder then
    return {-2}
elseif string.match(holder, '^%-?%d+$') then -- a semaphore, or a countdown latch
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
return {redis.call('pttl', lock), holder, 1}
