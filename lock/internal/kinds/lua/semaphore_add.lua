-- Semaphore, add: adds permits to the free ones, or takes some away; gives permits back.
-- KEYS  1 semaphore  2 its channel  3 latch: the outcome of this very request, should it be repeated
-- ARGV  1 lifetime in ms of the latch, behind the moment when this is too late  2 publish command
--       3 permits  4 1 to add to a semaphore that is there already and to no other
--       5 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when they are added, 0 when there is no semaphore to add to.
local semaphore, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local lifetime, publish, permits, existing, last = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > last then
    return redis.status_reply('late ' .. string.format('%.0f', now))
end
local outcome = redis.call('get', latch)
if outcome then
    return tonumber(outcome)
end
local free = redis.call('get', semaphore)
if free and not string.match(free, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE not a number of permits')
end
-- A write that needs no memory: after it a server that has run out of that does not refuse the others.
redis.call('del', latch)
if existing == '1' and not free then
    redis.call('set', latch, 0, 'px', last - now + lifetime)
    return 0
end
local total = redis.call('incrby', semaphore, permits)
redis.pcall(publish, channel, math.max(0, total)) -- a user who may not publish leaves waiters to look by themselves
redis.call('set', latch, 1, 'px', last - now + lifetime)
return 1
