-- Permit semaphore, undo: takes back an acquire whose outcome its caller does not know.
-- KEYS  1 semaphore  2 its channel  3 permits that are taken  4 latch: keeps the acquire, and this, from taking effect later
--       5 line, if there is one
-- ARGV  1 not used  2 ids, one behind the other  3 publish command  4 not used
--       5 when this is too late, in ms since 1970: no earlier than that of the acquire
--       and at the end what the server knows of listeners, and the client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when there was something to give back, else 0; running it again does no harm.
local semaphore, channel, permits, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ids, publish, last = ARGV[2], ARGV[3], tonumber(ARGV[5])

-- all_undo.lua
-- all_line.lua
-- all_number.lua
-- permits_return.lua
for i = 1, #ids, 16 do
    local id = string.sub(ids, i, i + 15)
    remove(id, redis.call('zscore', permits, id))
end
if not taken[1] then
    return 0
end
local total = restock()
tellFree(line, channel, publish, ARGV[#ARGV - 1], ARGV[#ARGV], math.max(0, total), total, total - #taken / 2)
return 1
