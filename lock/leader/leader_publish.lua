-- Leader, publish: notes who leads, where and since when, and its token, if that owner has the lock.
-- KEYS  1 lock: a hash of the owner to its hold count  2 record: a hash of owner, address, since and token
-- ARGV  1 owner  2 address  3 token
-- Returns 1, or 0 if the owner does not have the lock, which changes nothing.
local lock, record = KEYS[1], KEYS[2]
local owner, address, token = ARGV[1], ARGV[2], ARGV[3]

if redis.call('hexists', lock, owner) == 0 then
    return 0
end
local time = redis.call('time')
local since = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('hset', record, 'owner', owner, 'address', address, 'since', since, 'token', token)
return 1
