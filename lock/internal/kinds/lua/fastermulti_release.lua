-- Faster multi lock, release: gives the values of an owner back, and the group with the last ones.
-- KEYS  1 group  2 its channel  3 latch: there once this very request has given back all, should it be repeated
-- ARGV  1 not used  2 owner and values, with spaces between them  3 publish command  4 lifetime of the latch in ms
--       5 not used  6 not used: the owner never takes anything again
-- Returns 1 when the owner had all values, and otherwise nil: those that it had are given back all the same.
local group, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local owner, values = string.match(ARGV[2], '^(%S+) (.*)$')
local publish, lifetime = ARGV[3], ARGV[4]

if redis.call('exists', latch) == 1 then
    return 1
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held, freed = true, false
for value in string.gmatch(values, '%S+') do
    local hold = value .. ':' .. owner
    local ends = redis.call('hget', group, hold .. ':expire_time')
    local mine = redis.call('hget', group, value) == owner
    held = held and mine and ends and tonumber(ends) > now
    if mine then
        redis.call('hdel', group, value)
        freed = true
    end
    redis.call('hdel', group, hold .. ':expire_time', hold .. ':lock_count')
end
if freed then
    redis.pcall(publish, channel, '0') -- a user who may not publish leaves waiters to look by themselves
end
if not held then
    return nil
end
redis.call('set', latch, 1, 'px', lifetime)
return 1
