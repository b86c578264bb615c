-- Reentrant lock, handover: gives the lock from an owner that never has another hold to one who waits in the same process.
-- KEYS  1 lock  2 its channel, which is not used: nobody is told  3 latch, as of single, which a repeat of this is
--       4 latch of the next owner: there once the hand-over to it has been undone
-- ARGV  1 lease in ms of the next owner  2 owner  3 next owner  4 lifetime of the latch in ms  5 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the next owner has the lock, nil when the owner did not.
local lock, latch, undone = KEYS[1], KEYS[3], KEYS[4]
local lease, owner, heir, lifetime, last = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

-- all_late.lua
if redis.call('exists', undone) == 1 then
    return nil
end
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
if redis.call('hdel', lock, owner) == 0 then
    return nil
end
redis.call('hset', lock, heir, '1')
redis.call('pexpire', lock, lease)
redis.call('set', latch, owner, 'px', lifetime)
return 1
