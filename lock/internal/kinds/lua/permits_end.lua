-- Permit semaphore, end: ends the leases of permits, where the number of free permits is on another node.
-- The next client that asks for permits puts those back that have ended.
-- KEYS  1 permits that are taken
-- ARGV  1 ids, one behind the other
-- Returns 1 when all were held, and otherwise nil: those that were end all the same.
local permits, ids = KEYS[1], ARGV[1]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- A write that needs no memory: a full server refuses none behind it.
redis.call('zrem', permits, '')
local held = 1
for i = 1, #ids, 16 do
    local id = string.sub(ids, i, i + 15)
    if tonumber(redis.call('zscore', permits, id) or 0) > now then
        redis.call('zadd', permits, now, id)
    else
        held = nil
    end
end
return held
