-- Semaphore, acquire: takes permits if there are as many.
-- KEYS  1 semaphore: a string, the number of free permits  2 its channel
--       3 latch: how many permits this very request took, 0 once it has been undone
-- ARGV  1 time in ms within which an undo may come  2 not used  3 permits  4 1 to wait for a semaphore to be set up
--       5 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         nil when they are taken, the status unset when there is no semaphore, and otherwise -1.
local semaphore, latch = KEYS[1], KEYS[3]
local within, permits, waits, last = tonumber(ARGV[1]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > last then
    return redis.status_reply('late ' .. string.format('%.0f', now))
end
local taken = redis.call('get', latch)
if taken == '0' then
    return -1 -- late, and nobody waits for this any more
elseif taken then
    -- A WAIT behind a repeat counts who has the first request only if this writes, too. A latch that is to go soon has been settled.
    local left = redis.call('pttl', latch)
    redis.call('pexpire', latch, left > within / 5 and 2 * within or math.max(1, left))
    return nil
end
local free = redis.call('get', semaphore)
if not free then
    return waits == '1' and -1 or redis.status_reply('unset')
end
if not string.match(free, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE not a number of permits')
end
if tonumber(free) < permits then
    return -1
end
redis.call('decrby', semaphore, permits)
redis.call('set', latch, permits, 'px', 2 * within)
return nil
