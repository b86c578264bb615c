-- Reentrant lock, single: gives back the hold of an owner that never has another one.
-- KEYS  1 lock  2 its channel
--       3 latch: the last owner to have given the lock back by a request with this latch, should the request be repeated
-- ARGV  1 lease in ms, which is not used: no hold remains  2 owner  3 publish command ('': nobody is told)
--       4 lifetime of the latch in ms  5 1 for a repeat
-- Returns 1 when the lock is free now, and one more for each listener who was told so if that is known; nil when the owner had
--         no hold.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local owner, publish, lifetime, repeated = ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if repeated == '1' and redis.call('get', latch) == owner then
    return 1
end
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
if redis.call('hdel', lock, owner) == 0 then
    return nil
end
-- A user who may not publish leaves waiters to look by themselves.
local told = publish ~= '' and redis.pcall(publish, channel, '0')
redis.call('set', latch, owner, 'px', lifetime)
return type(told) == 'number' and 1 + told or 1
