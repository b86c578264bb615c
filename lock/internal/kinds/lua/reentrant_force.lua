-- Reentrant lock, force: frees the lock whoever has it.
-- KEYS  1 lock  2 its channel  3 line, if there is one
-- ARGV  1 publish command ('': nobody is told)  2 when this is too late, in ms since 1970
--       3 what the server knows of listeners  4 client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the lock was taken, else 0. A key of another type or kind is an error and stays.
local lock, channel, line = KEYS[1], KEYS[2], KEYS[3]
local publish, last = ARGV[1], tonumber(ARGV[2])

-- all_late.lua
-- all_line.lua
-- reentrant_holder.lua
if #holder == 0 then
    return 0
end
redis.call('del', lock)
tellFree(line, channel, publish, ARGV[3], ARGV[4], '0', 1)
return 1
