-- redisson fair lock, acquire: takes the lock if nobody stands before its owner, and otherwise has the owner stand in the queue.
-- KEYS  1 lock  2 queue  3 timeouts
-- ARGV  1 lease in ms  2 owner  3 wait in ms  4 now in ms  5 1: stand in the queue
-- Returns nil, or the time in ms after which to look again.
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local lease, owner, wait, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local head = redis.call('lindex', queue, 0)
while head do
    local score = redis.call('zscore', timeouts, head)
    if not score or tonumber(score) > now then
        break
    end
    redis.call('zrem', timeouts, head)
    redis.call('lpop', queue)
    head = redis.call('lindex', queue, 0)
end
if redis.call('exists', lock) == 0 and (not head or head == owner) then
    redis.call('lpop', queue)
    redis.call('zrem', timeouts, owner)
    for _, member in ipairs(redis.call('zrange', timeouts, 0, -1)) do
        redis.call('zincrby', timeouts, -wait, member)
    end
    redis.call('hset', lock, owner, 1)
    redis.call('pexpire', lock, lease)
    return nil
end
if redis.call('hexists', lock, owner) == 1 then
    redis.call('hincrby', lock, owner, 1)
    redis.call('pexpire', lock, lease)
    return nil
end
if ARGV[5] ~= '1' then
    return 1
end
local left = redis.call('pttl', lock)
if redis.call('zscore', timeouts, owner) then
    return math.max(0, left)
end
local last = redis.call('lindex', queue, -1)
local score = last and last ~= owner and redis.call('zscore', timeouts, last)
if score then
    left = tonumber(score) - now
end
if redis.call('zadd', timeouts, left + wait + now, owner) == 1 then
    redis.call('rpush', queue, owner)
end
return left
