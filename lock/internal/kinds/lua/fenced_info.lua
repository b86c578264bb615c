-- Fenced lock, info: what there is to see of the lock at one instant.
-- KEYS  1 lock  2 the last token
-- Returns the last token, the remaining lease in ms (-1: none, -2: not locked), then owner and hold count in turn.
local lock, token = KEYS[1], KEYS[2]

local info = redis.call('hgetall', lock)
if #info > 2 or info[2] and not string.match(info[2], '^%d+$') then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
table.insert(info, 1, redis.call('pttl', lock))
table.insert(info, 1, redis.call('get', token) or '0')
return info
