-- Reentrant lock, acquire: takes the lock for an owner who finds it free or has it already.
-- KEYS  1 lock: a hash of the owner to its hold count
--       2 latch: there once this very request has been undone  3 line, if there is one
-- ARGV  1 lease in ms  2 owner  3 when this is too late, in ms since 1970
--       4 place in the line  5 what becomes of it: '' nothing; taken when refused ("join", as without this); and when granted
--       ended ("leave") or moved to the end ("move")
-- Returns late and the server's time as a status when it is too late, which changes nothing;
--         otherwise nil for the first hold, the hold count as a status for a further one,
--         and otherwise when to ask again in ms: at the end of the other's lease or turn (-1: it has none).
local lock, latch, line = KEYS[1], KEYS[2], KEYS[3]
local lease, owner, last = ARGV[1], ARGV[2], tonumber(ARGV[3])
local place, stand, draw = ARGV[4] or '', ARGV[5] or ARGV[4] and 'join' or '', nil

-- all_late.lua
-- reentrant_take.lua
local count = redis.call('hincrby', lock, owner, 1)
giveWay(line, place, stand)
-- A further hold never shortens the lease of those it is nested in.
if redis.call('pttl', lock) < tonumber(lease) then
    redis.call('pexpire', lock, lease)
end
return redis.status_reply(string.format('%d', count))
