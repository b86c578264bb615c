-- Fenced lock, handover: gives the lock from an owner that never has another hold to one who waits in the same process.
-- The next owner gets the next token.
-- KEYS  1 lock  2 its channel, which is not used: nobody is told  3 latch, as of the reentrant lock's
-- ARGV  1 lease in ms of the next owner  2 owner  3 next owner  4 lifetime of the latch in ms
--       5 1 for tokens that count from 1 as Redisson's do, else they are no less than the server's time in µs
-- Returns 1 and the token when the next owner has the lock, nil when the owner did not.
local lock, latch = KEYS[1], KEYS[3]
local lease, owner, heir, lifetime, plain = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
-- In the hash slot of the lock: by its hash tag, or with all of its name as one.
local token = 'redisson_lock_token:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}')

if redis.call('hexists', lock, owner) == 0 then
    return nil
end
-- As in acquire.
local count, time = redis.call('incr', token), redis.call('time')
local drawn = plain == '1' and count or math.max(count, tonumber(time[1]) * 1000000 + tonumber(time[2]))
redis.call('set', token, string.format('%.0f', drawn))
redis.call('del', lock)
redis.call('hset', lock, heir, 1)
redis.call('pexpire', lock, lease)
redis.call('set', latch, owner, 'px', lifetime)
return {1, drawn}
