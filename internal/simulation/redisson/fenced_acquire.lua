-- redisson fenced lock, acquire: takes the lock, and draws a token each time.
-- KEYS  1 lock  2 token
-- ARGV  1 lease in ms  2 owner
-- Returns -1 and the token, or the lock's time to live and -1 if somebody else has it.
local lock, token, lease, owner = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if redis.call('exists', lock) == 1 and redis.call('hexists', lock, owner) == 0 then
    return {redis.call('pttl', lock), -1}
end
local drawn = redis.call('incr', token)
redis.call('hincrby', lock, owner, 1)
redis.call('pexpire', lock, lease)
return {-1, drawn}
