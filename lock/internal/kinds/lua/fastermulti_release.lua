-- Faster multi lock, release: gives a hold of each value of an owner back, and the values with their last holds.
-- KEYS  1 group  2 its channel  3 latch: the outcome of this very request, should it be repeated  4 line, if there is one
-- ARGV  1 what the owner keeps by other holds, as its client knows them: for each value the hold count and the lease in ms, with
--       spaces between them (0: nothing)
--       2 owner and values, with spaces between them  3 publish command  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later
--       6 when this is too late, in ms since 1970 (0: never; it is the first request of an owner that never has another hold)
--       7 what the server knows of listeners  8 not used  9 its place in the line  10 what becomes of it, as for a Reentrant lock
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise nil when the owner did not
--         have all values, 0 when it has holds of some of them, else 1. The values that it had are given back in each case.
local group, channel, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, values = string.match(ARGV[2], '^(%S+) (.*)$')
local publish, lifetime, repeated, last = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

-- all_repeat.lua
if not now then
    local time = redis.call('time')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- fastermulti_values.lua
local held, freed, shorter, keeps = giveBack(ARGV[1])
local result = keeps and 0 or 1
if held or repeated == '1' then
    redis.call('set', latch, held and result or -1, 'px', lifetime)
end
result = held and result or nil
if not line or redis.call('exists', line) == 0 and ARGV[10] ~= 'move' then
    if freed or shorter then
        redis.pcall(publish, channel, '0') -- a user who may not publish leaves waiters to look by themselves
    end
    return result
end
-- all_line.lua
-- fastermulti_line.lua
-- fastermulti_next.lua
-- fastermulti_dead.lua
-- fastermulti_call.lua
giveWay(line, ARGV[9], ARGV[10])
if freed or shorter then
    callForValues(line, channel, publish, ARGV[7], values)
end
return result
