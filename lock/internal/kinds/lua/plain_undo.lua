-- Plain lock, undo: takes back an acquire whose outcome its caller does not know.
-- KEYS  1 lock  2 its channel, which is not used
--       3 latch: keeps the acquire, and this, from taking effect later
-- ARGV  1 not used  2 owner  3 not used  4 hold count that the owner had before
--       5 when this is too late, in ms since 1970: no earlier than that of the acquire
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when there was something to take back, else 0; running it again does no harm.
local lock, latch = KEYS[1], KEYS[3]
local owner, before, last = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])

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
if before > 0 or redis.call('get', lock) ~= owner then
    return 0
end
redis.call('del', lock)
return 1
