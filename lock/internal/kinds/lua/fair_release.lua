-- Fair lock, release: gives one hold back, and the lock with the last one, and tells who heads the queue.
-- KEYS  1 lock  2 its channel; a waiter's own has a colon and the waiter behind  3 queue  4 timeouts  5 idle
--       6 latch: the outcome of this very request, should it be repeated
-- ARGV  1 lease in ms to go back to when holds remain (0: none is alive any more)
--       2 owner  3 publish command  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later
--       6 when this is too late, in ms since 1970 (0: never; it is the first request of an owner that never has another hold)
--       7 1 if this server knows all who listen on a channel: then it tells those behind who does not, too, until one does
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the lock is free now, 0 when the owner has further holds, nil when it has none.
local lock, channel, queue, timeouts, _, latch = unpack(KEYS)
local lease, owner, publish, lifetime, repeated, last, counts = unpack(ARGV)
last = tonumber(last)
-- all_repeat.lua
-- fair_head.lua
-- fair_deaf.lua
-- fair_tell.lua
local holds = tonumber(redis.call('hget', lock, owner))
if not holds and redis.call('exists', lock) == 0 then
    tell()
end
-- all_unheld.lua
if holds > 1 and tonumber(lease) > 0 then
    redis.call('pexpire', lock, lease)
    redis.call('hincrby', lock, owner, -1)
    if redis.pcall('set', latch, 0, 'px', lifetime).err then
        redis.call('hincrby', lock, owner, 1) -- or else a repeat, or an earlier request, would end another hold
        redis.call('set', latch, 0, 'px', lifetime) -- refused again: the error of the script
    end
    return 0
end
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
redis.call('del', lock)
tell()
redis.call('set', latch, '1', 'px', lifetime)
return 1
