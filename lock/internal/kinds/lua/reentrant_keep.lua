-- Reentrant lock, keep: the release of an owner that never has another hold, before the time for which it wants the lock kept.
-- KEYS  1 lock  2 its channel  3 latch, as of single, which a repeat of this may be
-- ARGV  1 rest of that time in ms  2 owner  3 publish command ('': nobody is told)  4 lifetime of the latch in ms  5 1 for a repeat
--       6 when this is too late, in ms since 1970  7 owner for the rest, whom nobody is: a late renewal finds no lock of its owner
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the lock has the rest as its lease, nil when the owner had no hold.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local rest, owner, publish, lifetime, repeated, last, nobody = unpack(ARGV)
last = tonumber(last)

-- all_late.lua
if repeated == '1' and redis.call('get', latch) == owner then
    return 1
end
if redis.call('hexists', lock, owner) == 0 then
    return nil
end
redis.call('hdel', lock, nobody) -- finds nothing: without the right, the script fails here and not with two owners in the lock
-- First what needs no memory: a server that has run out of it refuses all else, but not after a script's first write.
redis.call('pexpire', lock, rest)
redis.call('hset', lock, nobody, 1) -- before the last field goes: where the slot is leaving no key can be made
redis.call('hdel', lock, owner)
if publish ~= '' then
    redis.pcall(publish, channel, '0') -- the lease may end sooner than waiters know
end
redis.call('set', latch, owner, 'px', lifetime)
return 1
