-- Plain lock, force: frees the lock whoever has it.
-- KEYS  1 lock  2 its channel, which is not used
-- ARGV  1 not used  2 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the lock was taken, else 0. A key of another type or kind is an error and stays.
local lock, last = KEYS[1], tonumber(ARGV[2])

-- all_late.lua
local holder = redis.call('get', lock)
if not holder then
    return 0
elseif string.match(holder, '^%-?%d+$') then -- a semaphore, or a countdown latch
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
return redis.call('del', lock)
