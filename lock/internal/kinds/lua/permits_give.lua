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
-- permits_return.lua
local leases = {}
for i = 1, #ids, 16 do
    local ends = redis.call('zscore', permits, string.sub(ids, i, i + 15))
    if not ends or tonumber(ends) <= now then
        return 0 -- and so to a repeat: nobody takes a permit by the same id again
    end
    leases[i] = ends
end
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
for i = 1, #ids, 16 do
    remove(string.sub(ids, i, i + 15), leases[i])
end
local total = restock()
-- Redisson tells of one permit how many are free now, and of several how many came back.
local told = #ids > 16 and #ids / 16 or math.max(0, total)
tellFree(line, channel, publish, ARGV[5], ARGV[6], told, total, total - #ids / 16)
redis.call('set', latch, 1, 'px', last - now + lifetime)
return 1
