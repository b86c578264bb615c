-- Plain lock, undo: takes back an acquire whose outcome its caller does not know.
-- KEYS  1 lock  2 its channel, which is not used
--       3 latch: keeps the acquire, and this, from taking effect later
-- ARGV  1 not used  2 owner  3 not used  4 hold count that the owner had before
--       5 when this is too late, in ms since 1970: no earlier than that of the acquire
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when there was something to take back, else 0; running it again does no harm.
local lock, latch = KEYS[1], KEYS[3]
local owner, before, last = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])

-- all_undo.lua
if before > 0 or redis.call('get', lock) ~= owner then
    return 0
end
redis.call('del', lock)
return 1
