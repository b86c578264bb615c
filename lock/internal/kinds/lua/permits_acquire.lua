-- Permit semaphore, acquire: takes as many permits as there are ids, if so many are free.
-- KEYS  1 semaphore: a string, the number of free permits  2 its channel
--       3 permits that are taken: a sorted set of their ids, 16 bytes each, by the end of their leases in ms since 1970
--       4 latch: there once this very request has been undone
-- ARGV  1 lease in ms  2 ids, one behind the other  3 publish command
--       4 1 to wait for a semaphore to be set up  5 1 for permits whose lease never ends
--       6 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         nil when they are taken, the status unset when there is no semaphore, and otherwise how long it is in ms
--         until the next lease ends (-1: none does).
local semaphore, channel, permits, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, ids, publish, waits, forever, last = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local never = '922337203685477' -- as Redisson has it

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > last then
    return redis.status_reply('late ' .. string.format('%.0f', now))
end
if redis.call('exists', latch) == 1 then
    return -1 -- undone: nobody waits for this any more
end
if redis.call('zscore', permits, string.sub(ids, 1, 16)) then
    return nil -- a repeat
end
if not string.match(redis.call('get', semaphore) or '0', '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE not a number of permits')
end
local ended = redis.call('zremrangebyscore', permits, '-inf', now)
if ended > 0 then
    local total = redis.call('incrby', semaphore, ended)
    if total > 0 then
        redis.pcall(publish, channel, total) -- a user who may not publish leaves waiters to look by themselves
    end
end
local free = redis.call('get', semaphore)
if not free then
    return waits == '1' and -1 or redis.status_reply('unset')
end
local count = #ids / 16
if tonumber(free) < count then
    local first = redis.call('zrange', permits, 0, 0, 'withscores')
    return first[2] and tonumber(first[2]) < tonumber(never) and tonumber(first[2]) - now or -1
end
redis.call('decrby', semaphore, count)
for i = 1, #ids, 16 do
    redis.call('zadd', permits, forever == '1' and never or now + lease, string.sub(ids, i, i + 15))
end
local ends = redis.call('pttl', semaphore)
if ends > 0 then
    redis.call('pexpire', permits, ends)
end
return nil
