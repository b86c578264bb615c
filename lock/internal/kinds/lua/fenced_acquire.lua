-- Fenced lock, acquire: takes the lock for an owner who finds it free or has it already, with a fencing token.
-- KEYS  1 lock: a hash of the owner to its hold count  2 the last token
--       3 latch: there once this very request has been undone  4 line, if there is one
-- ARGV  1 lease in ms  2 owner
--       3 -1 for tokens that count from 1 as Redisson's do. Otherwise they are no less than the server's time in µs, and the last one
--       stays for so long in ms after the time in it (0: for ever)
--       4 the token of the owner's holds, 0 if none of them has one  5 when this is too late, in ms since 1970
--       6 place in the line  7 what becomes of it: '' nothing; taken when refused ("join", as without this); and when granted
--       ended ("leave") or moved to the end ("move")
-- Returns late and the server's time as a status when it is too late, which changes nothing;
--         otherwise the hold count and the token, which a further hold shares with those that have one,
--         and otherwise when to ask again in ms: at the end of the other's lease or turn (-1: it has none).
local lock, token, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, owner, life, shared, last = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local place, stand = ARGV[6] or '', ARGV[7] or ARGV[6] and 'join' or ''

-- all_late.lua
-- fenced_draw.lua
-- reentrant_take.lua
local drawn = shared ~= '0' and redis.call('get', token) -- nothing once the counter has ended by its life
if shared == '0' or drawn and drawn ~= shared then -- after another's token the other holds are lost
    shared = draw()
end
local count = redis.call('hincrby', lock, owner, 1)
giveWay(line, place, stand)
-- A further hold never shortens the lease of those it is nested in.
if redis.call('pttl', lock) < tonumber(lease) then
    redis.call('pexpire', lock, lease)
end
return {count, shared}
