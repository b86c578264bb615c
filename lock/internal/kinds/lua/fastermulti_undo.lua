-- Faster multi lock, undo: takes back an acquire whose outcome its caller does not know.
-- KEYS  1 group  2 its channel  3 latch: keeps the acquire, and this, from taking effect later
-- ARGV  1 what the owner had before, as its client knows it: for each value the hold count and the lease in ms, with spaces between
--       them (0: nothing)
--       2 owner and values, with spaces between them  3 publish command  4 not used
--       5 when this is too late, in ms since 1970: no earlier than that of the acquire
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when a value is free now that was not, else 0; running it again does no harm.
local group, channel, latch = KEYS[1], KEYS[2], KEYS[3]
local owner, values = string.match(ARGV[2], '^(%S+) (.*)$')
local publish, last = ARGV[3], tonumber(ARGV[5])

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > last then
    return redis.status_reply('late ' .. string.format('%.0f', now))
end
local lasts = math.max(1, last - now, redis.call('pttl', latch))
if redis.call('pexpire', latch, lasts) == 1 then
    return 0 -- it has been undone
end
redis.call('set', latch, 0, 'px', lasts) -- after a write that needs no memory a server that has run out of that does not refuse others
-- fastermulti_values.lua
local _, freed, shorter = giveBack(ARGV[1])
if freed or shorter then
    redis.pcall(publish, channel, '0')
end
return freed and 1 or 0
