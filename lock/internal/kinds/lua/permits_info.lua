-- Permit semaphore, info: what there is to see of the semaphore at one instant.
-- KEYS  1 semaphore  2 its channel  3 permits that are taken
-- Returns a list: 1 if the semaphore has been set up, the number of free permits and of those taken, and of the first
--         thousand of these to end the id and the remaining lease in ms (-1: it never ends) in turn.
local permits = KEYS[3]
local never = 922337203685477

-- all_number.lua
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ended = redis.call('zcount', permits, '-inf', now)
local taken = redis.call('zcard', permits) - ended
local info = {value and 1 or 0, tonumber(value or 0) + ended, taken}
local list = redis.call('zrange', permits, ended, ended + 999, 'withscores')
for i = 1, #list, 2 do
    table.insert(info, list[i])
    table.insert(info, tonumber(list[i + 1]) < never and tonumber(list[i + 1]) - now or -1)
end
return info
