-- Permit semaphore, force: frees all permits, whoever has them.
-- KEYS  1 semaphore  2 its channel  3 permits that are taken
-- ARGV  1 publish command
-- Returns 1 when there were any, else 0. A key of another type is an error and stays.
local semaphore, channel, permits = KEYS[1], KEYS[2], KEYS[3]
local publish = ARGV[1]

if not string.match(redis.call('get', semaphore) or '0', '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE not a number of permits')
end
local taken = redis.call('zcard', permits)
if taken == 0 then
    return 0
end
redis.call('del', permits)
local total = redis.call('incrby', semaphore, taken)
redis.pcall(publish, channel, math.max(0, total)) -- a user who may not publish leaves waiters to look by themselves
return 1
