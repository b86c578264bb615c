-- redisson lock, acquire: takes the lock, or takes it once more for its owner.
-- KEYS  1 lock
-- ARGV  1 lease in ms  2 owner
-- Returns nil, or the lock's time to live if somebody else has it.
local lock, lease, owner = KEYS[1], ARGV[1], ARGV[2]
if redis.call('exists', lock) == 1 and redis.call('hexists', lock, owner) == 0 then
    return redis.call('pttl', lock)
end
redis.call('hincrby', lock, owner, 1)
redis.call('pexpire', lock, lease)
return nil
