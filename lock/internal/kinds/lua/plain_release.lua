-- Plain lock, release: deletes the key if it is still its owner's.
-- KEYS  1 lock  2 its channel, which is not used  3 latch: the outcome of this very request, should it be repeated
-- ARGV  1 not used  2 owner  3 not used  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later
--       6 when this is too late, in ms since 1970 (0: never; it is the first request of an owner that never has another hold)
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the lock is free now, nil when it was not the owner's.
local lock, latch = KEYS[1], KEYS[3]
local owner, lifetime, repeated, last = ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6])

-- all_repeat.lua
local holds = redis.call('get', lock) == owner
-- all_unheld.lua
redis.call('del', lock)
redis.call('set', latch, '1', 'px', lifetime)
return 1
