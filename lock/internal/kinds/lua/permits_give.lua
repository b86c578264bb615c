-- Permit semaphore, give: gives permits back, all or none.
-- KEYS  1 semaphore  2 its channel  3 permits that are taken  4 latch: the outcome of this very request, should it be repeated
--       5 line, if there is one
-- ARGV  1 lifetime in ms of the latch, behind the moment when this is too late  2 publish command  3 ids, one behind the other
--       4 when this is too late, in ms since 1970  5 what the server knows of listeners  6 client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1, or 0 when one of them was not held.
local semaphore, channel, permits, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lifetime, publish, ids, last = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])

-- all_change.lua
-- all_line.lua
-- all_number.lua
local taken = {}
for i = 1, #ids, 16 do
    local id = string.sub(ids, i, i + 15)
    local ends = redis.call('zscore', permits, id)
    if not ends or tonumber(ends) <= now then
        return 0 -- and so to a repeat: nobody takes a permit by the same id again
    end
    table.insert(taken, ends)
    table.insert(taken, id)
end
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
for i = 1, #ids, 16 do
    redis.call('zrem', permits, string.sub(ids, i, i + 15))
end
local total = redis.pcall('incrby', semaphore, #ids / 16)
if type(total) == 'table' then
    redis.call('zadd', permits, unpack(taken)) -- else nobody would have them, and they would never come back
    redis.call('incrby', semaphore, #ids / 16) -- refused again: the error of the script
end
-- Redisson tells of one permit how many are free now, and of several how many came back.
local told = #ids > 16 and #ids / 16 or math.max(0, total)
tellFree(line, channel, publish, ARGV[5], ARGV[6], told, total, total - #ids / 16)
redis.call('set', latch, 1, 'px', last - now + lifetime)
return 1
