-- redisson fair lock, release: takes a hold back, and tells the head of the queue when it was the last.
-- KEYS  1 lock  2 queue  3 timeouts  4 channel; a waiter's own has a colon and the waiter behind  5 latch
-- ARGV  1 message  2 lease in ms  3 owner  4 now in ms  5 publish command  6 life of the latch in ms
-- Returns 1 if the lock is free, 0 if holds are left, nil if somebody else has it.
local lock, queue, timeouts, channel, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local message, lease, owner, now, publish, life = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local outcome = redis.call('get', latch)
if outcome then
    return tonumber(outcome)
end
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
if redis.call('exists', lock) == 1 then
    if redis.call('hexists', lock, owner) == 0 then
        return nil
    end
    if redis.call('hincrby', lock, owner, -1) > 0 then
        redis.call('pexpire', lock, lease)
        redis.call('set', latch, 0, 'px', life)
        return 0
    end
    redis.call('del', lock)
end
redis.call('set', latch, 1, 'px', life)
if head then
    redis.call(publish, channel .. ':' .. head, message)
end
return 1
