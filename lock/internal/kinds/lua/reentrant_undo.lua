-- Reentrant lock, undo: takes back an acquire whose outcome its caller does not know.
-- KEYS  1 lock  2 its channel
--       3 latch: keeps the acquire, and this, from taking effect later  4 line, if there is one
-- ARGV  1 lease in ms to go back to when holds remain  2 owner  3 publish command ('': nobody is told)
--       4 hold count that the owner had before
--       5 when this is too late, in ms since 1970: no earlier than that of the acquire
--       and at the end what the server knows of listeners, and the client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when there was something to take back, else 0; running it again does no harm.
local lock, channel, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, owner, publish, before, last = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

-- all_undo.lua
-- all_line.lua
local count = tonumber(redis.call('hget', lock, owner) or 0)
if count <= before then
    return 0
end
if before > 0 and tonumber(lease) > 0 then
    redis.call('hset', lock, owner, before)
    redis.call('pexpire', lock, lease)
    return 1
end
redis.call('del', lock)
tellFree(line, channel, publish, ARGV[#ARGV - 1], ARGV[#ARGV], '0', 1)
return 1
