-- Permit semaphore, release: gives permits back.
-- KEYS  1 semaphore  2 its channel  3 permits that are taken  4 latch: there once this very request has
--       given back all, should it be repeated  5 line, if there is one
-- ARGV  1 not used  2 ids, one behind the other  3 publish command  4 lifetime of the latch in ms
--       5 not used  6 not used  7 what the server knows of listeners  8 client's id  9 its place in the line
--       10 what becomes of it: ended ("leave"), moved to the end ("move") or nothing ('')
-- Returns 1 when all were held, and otherwise nil: those that were are given back all the same.
local semaphore, channel, permits, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ids, publish, lifetime, heard, stand = ARGV[2], ARGV[3], ARGV[4], 7, ARGV[10]

local done, free = unpack(redis.call('mget', latch, semaphore))
if done then
    return 1
end
if not string.match(free or redis.call('get', semaphore) or '0', '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE The key does not hold a number')
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- permits_return.lua
local held = true
for i = 1, #ids, 16 do
    local id = string.sub(ids, i, i + 15)
    local ends = redis.call('zscore', permits, id)
    if not ends or tonumber(ends) <= now then
        held = false
    end
    -- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
    remove(id, ends)
end
local returned = #taken / 2
local available = returned > 0 and restock()
local before, result = available and available - returned, held and 1 or nil
if held then
    redis.call('set', latch, '1', 'px', lifetime)
end
-- Redisson tells of one permit how many are free now, and of several how many came back.
local message = available and (#ids > 16 and returned or math.max(0, available))
local quiet = not message and stand == '' or stand ~= 'move' and (not line or redis.call('exists', line) == 0)
-- all_tell.lua
