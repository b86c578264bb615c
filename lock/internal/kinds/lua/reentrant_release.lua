-- Reentrant lock, release: gives one hold back, and the lock with the last one.
-- KEYS  1 lock  2 its channel  3 latch: the outcome of this very request, should it be repeated  4 line, if there is one
-- ARGV  1 lease in ms to go back to when holds remain (0: none is alive any more)
--       2 owner  3 publish command ('': nobody is told)  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later
--       6 when this is too late, in ms since 1970
--       7 what the server knows of listeners  8 client's id  9 its place in the line
--       10 what becomes of it: ended ("leave"), moved to the end ("move") or nothing ('')
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the lock is free now, 4 when moreover clients wait that know nothing of the line, 0 when the owner has further holds, nil
--         when it has none.
local lock, channel, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, owner, publish, lifetime, repeated, last = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local heard, stand = 7, ARGV[10]

-- all_late.lua
lifetime = math.max(lifetime, last - now) -- an earlier request may come for as long as it is good
local known = redis.call('exists', latch, line or latch) > 0 -- one question in place of two
local outcome = known and redis.call('get', latch)
if outcome then
    return outcome ~= '-1' and tonumber(outcome) or nil
end
local holds = lease > 0 and redis.call('hget', lock, owner) or lease == 0 and redis.call('hdel', lock, owner) == 1 -- with its only field the lock goes
-- all_unheld.lua
local rest = lease > 0 and holds - 1 or 0
local result, message, available, before = rest > 0 and 0 or 1, rest == 0 and '0', 1, nil
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
if rest > 0 then
    redis.call('pexpire', lock, lease)
    redis.call('hincrby', lock, owner, -1)
elseif lease > 0 then
    redis.call('del', lock)
end
if redis.pcall('set', latch, result == 1 and '1' or '0', 'px', lifetime).err then
    if rest > 0 then redis.call('hincrby', lock, owner, 1) end -- or else a repeat, or an earlier request, would end another hold
    redis.call('set', latch, '0', 'px', lifetime) -- refused again: the error of the script
end
local quiet = stand ~= 'move' and not known
-- all_tell.lua
