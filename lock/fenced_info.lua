-- Fenced lock, info: what there is to see of the lock at one instant.
-- KEYS  1 lock  2 its channel
-- Returns the last token, the remaining lease in ms (-1: none, -2: not locked), then owner and hold count in turn.
local lock = KEYS[1]
local token = 'redisson_lock_token:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}')

local info = redis.call('hgetall', lock)
table.insert(info, 1, redis.call('pttl', lock))
table.insert(info, 1, redis.call('get', token) or '0')
return info
