-- Write lock, undo: takes back an acquire whose outcome its caller does not know, and the word that a writer waits.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 lease of the owner's first hold as a reader
--       5 latch: keeps the acquire, and this, from taking effect later
--       6.. leases of the owner's further holds as a reader, and behind them the line, if there is one
-- ARGV  1 lease in ms that the owner's remaining write holds need  2 owner, with ":write" behind  3 publish command
--       4 hold count that the owner had before  5 when this is too late, in ms since 1970: no earlier than that of the acquire
--       and at the end what the server knows of listeners, and the client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when there was something to take back, else 0; running it again does no harm.
local lock, channel, writers, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local lease, owner, publish, before, last = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local counted, id = ARGV[#ARGV - 1], ARGV[#ARGV]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local line = KEYS[#KEYS] == 'lockwire_line:' .. prefix and KEYS[#KEYS]

-- all_late.lua
-- all_line.lua
local waited = redis.call('zrem', writers, owner)
if waited == 1 then
    tellFree(line, channel, publish, counted, id, '1', availableOf(lock)) -- for the readers that let it go first
end
local lasts = math.max(1, last - now, redis.call('pttl', latch))
if redis.call('pexpire', latch, lasts) == 1 then
    return waited -- it has been undone
end
redis.call('set', latch, 0, 'px', lasts) -- after a write that needs no memory a server that has run out of that does not refuse others
local reader = string.sub(owner, 1, -7)
local holds, reads = unpack(redis.call('hmget', lock, owner, reader))
if tonumber(holds or 0) <= before then
    return waited
end
local rest = lease > 0 and before or 0
-- write_leave.lua
if rest == 0 then
    tellFree(line, channel, publish, counted, id, '1', left > 0 and 1 - share or 1)
end
return 1
