-- Semaphore, info: what there is to see of the semaphore at one instant.
-- KEYS  1 semaphore  2 its channel
-- Returns a list: the number of free permits, and the remaining lifetime of the key in ms (-1: it has none);
--         an empty one when there is no semaphore.
local semaphore = KEYS[1]

local free = redis.call('get', semaphore)
if not free then
    return {}
end
if not string.match(free, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE not a number of permits')
end
return {tonumber(free), redis.call('pttl', semaphore)}
