-- Plain lock, keep: the release of an owner before the time for which it wants the lock kept.
-- KEYS  1 lock  2 its channel, which is not used  3 latch, as of release, which a repeat of this may be
-- ARGV  1 rest of that time in ms  2 owner  3 not used  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later
--       6 when this is too late, in ms since 1970  7 owner for the rest, whom nobody is: a late renewal finds no lock of its owner
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the lock has the rest as its lease, nil when it was not the owner's.
local lock, latch = KEYS[1], KEYS[3]
local rest, owner, _, lifetime, repeated, last, nobody = unpack(ARGV)
last = tonumber(last)

-- all_repeat.lua
local holds = redis.call('get', lock) == owner
-- all_unheld.lua
-- First what needs no memory: a server that has run out of it refuses all else, but not after a script's first write.
redis.call('pexpire', lock, rest)
redis.call('set', lock, nobody, 'px', rest)
redis.call('set', latch, 1, 'px', lifetime)
return 1
