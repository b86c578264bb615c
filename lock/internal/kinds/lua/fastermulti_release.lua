-- Faster multi lock, release: gives a hold of each value of an owner back, and the values with their last holds.
-- KEYS  1 group  2 its channel  3 latch: the outcome of this very request, should it be repeated
-- ARGV  1 what the owner keeps by other holds, as its client knows them: for each value the hold count and the lease in ms, with
--       spaces between them (0: nothing)
--       2 owner and values, with spaces between them  3 publish command  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later
--       6 when this is too late, in ms since 1970 (0: never; it is the first request of an owner that never has another hold)
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise nil when the owner did not
--         have all values, 0 when it has holds of some of them, else 1. The values that it had are given back in each case.
local group, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local owner, values = string.match(ARGV[2], '^(%S+) (.*)$')
local publish, lifetime, repeated, last = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

-- all_repeat.lua
if not now then
    local time = redis.call('time')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- fastermulti_values.lua
local held, freed, shorter, keeps = giveBack(ARGV[1])
if freed or shorter then
    redis.pcall(publish, channel, '0') -- a user who may not publish leaves waiters to look by themselves
end
local result = keeps and 0 or 1
if held or repeated == '1' then
    redis.call('set', latch, held and result or -1, 'px', lifetime)
end
return held and result or nil
