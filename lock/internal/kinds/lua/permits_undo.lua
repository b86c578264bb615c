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
local returned, taken = 0, {}
for i = 1, #ids, 16 do
    local id = string.sub(ids, i, i + 15)
    local ends = redis.call('zscore', permits, id)
    if redis.call('zrem', permits, id) == 1 then
        returned = returned + 1
        table.insert(taken, ends)
        table.insert(taken, id)
    end
end
if returned == 0 then
    return 0
end
local total = redis.pcall('incrby', semaphore, returned)
if type(total) == 'table' then
    redis.call('zadd', permits, unpack(taken)) -- else nobody would have them, and they would never come back
    redis.call('incrby', semaphore, returned) -- refused again: the error of the script
end
tellFree(line, channel, publish, ARGV[#ARGV - 1], ARGV[#ARGV], math.max(0, total), total, total - returned)
return 1
