-- Faster multi lock, undo: takes back an acquire whose outcome its caller does not know.
-- KEYS  1 group  2 its channel  3 latch: keeps the acquire, and this, from taking effect later
--       4 line, if there is one
-- ARGV  1 what the owner had before, as its client knows it: for each value the hold count and the lease in ms, with spaces between
--       them (0: nothing)
--       2 owner and values, with spaces between them  3 publish command  4 not used
--       5 when this is too late, in ms since 1970: no earlier than that of the acquire
--       and at the end what the server knows of listeners, and the client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when a value is free now that was not, else 0; running it again does no harm.
local group, channel, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, values = string.match(ARGV[2], '^(%S+) (.*)$')
local publish, last = ARGV[3], tonumber(ARGV[5])

-- all_undo.lua
-- fastermulti_values.lua
-- all_line.lua
-- fastermulti_line.lua
-- fastermulti_next.lua
-- fastermulti_dead.lua
-- fastermulti_call.lua
local _, freed, shorter = giveBack(ARGV[1])
if freed or shorter then
    callForValues(line, channel, publish, ARGV[#ARGV - 1], values)
end
return freed and 1 or 0
