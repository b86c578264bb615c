-- Semaphore, drain: takes all permits that are free, or adds those that are lacking.
-- KEYS  1 semaphore  2 its channel  3 latch: the outcome of this very request, should it be repeated
-- ARGV  1 lifetime of the latch in ms  2 not used
-- Returns the number of permits taken, less than 0 when so many were lacking.
local semaphore, latch = KEYS[1], KEYS[3]
local lifetime = ARGV[1]

local outcome = redis.call('get', latch)
if outcome then
    return tonumber(outcome)
end
local free = redis.call('get', semaphore) or '0'
if not string.match(free, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE not a number of permits')
end
free = tonumber(free)
if free ~= 0 then
    redis.call('decrby', semaphore, free) -- and not set, which would end the key's lease
end
redis.call('set', latch, free, 'px', lifetime)
return free
