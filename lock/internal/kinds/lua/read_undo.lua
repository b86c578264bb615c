-- Read lock, undo: takes back an acquire, or what a downgrade has made, whose outcome its caller does not know.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 lease of the owner's first hold
--       5 latch: keeps the acquire, or the downgrade, and this, from taking effect later  6.. leases of the owner's further holds, then the line, if any
--       Those of other readers, whom nobody knows before, are asked for where the server allows it.
-- ARGV  1 lease in ms that the owner's remaining holds need  2 owner  3 publish command
--       4 hold count that the owner had before  5 when this is too late, in ms since 1970: no earlier than that of the acquire
--       and at the end what the server knows of listeners, and the client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when there was something to take back, else 0; running it again does no harm.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[5]
local lease, owner, publish, before, last = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local counted, id = ARGV[#ARGV - 1], ARGV[#ARGV]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local line = KEYS[#KEYS] == 'lockwire_line:' .. prefix and KEYS[#KEYS]
local hold = prefix .. ':' .. owner .. ':rwlock_timeout:'
-- read_leave.lua
-- all_undo.lua
-- all_line.lua
local count = redis.call('hget', lock, 'mode') and tonumber(redis.call('hget', lock, owner) or 0) or 0
if count <= before then
    return 0
end
if leave(count, tonumber(lease) > 0 and before or 0) then
    tellFree(line, channel, publish, counted, id, '0', 1)
end
return 1
