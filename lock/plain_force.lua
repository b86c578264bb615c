-- Plain lock, force: frees the lock whoever has it.
-- KEYS  1 lock  2 its channel, which is not used
-- Returns 1 when the lock was taken, else 0. A key of another type is an error and stays.
local lock = KEYS[1]

if not redis.call('get', lock) then
    return 0
end
return redis.call('del', lock)
