-- Plain lock, undo: takes back an acquire whose outcome its caller does not know.
-- KEYS  1 lock  2 its channel, which is not used
--       3 latch, for an owner that is passed: keeps the acquire, and this, from taking effect later
-- ARGV  1 not used  2 owner  3 not used  4 hold count that the owner had before  5 lifetime of the latch in ms
-- Returns 1 when there was something to take back, else 0; running it again does no harm.
local lock, latch = KEYS[1], KEYS[3]
local owner, before, lifetime = ARGV[2], tonumber(ARGV[4]), ARGV[5]

if latch and redis.call('exists', latch) == 1 then
    return 0
end
if latch then
    redis.call('set', latch, 0, 'px', lifetime)
end
if before > 0 or redis.call('get', lock) ~= owner then
    return 0
end
redis.call('del', lock)
return 1
