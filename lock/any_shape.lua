-- Any kind, shape: what a key is by its looks.
-- KEYS  1 a key of any type
-- Returns the shape as text: lock, fenced, fair, readwrite, permits, count, or "" for none of them.
local key = KEYS[1]
local tag = string.find(key, '{', 1, true) and key or '{' .. key .. '}'

local type = redis.call('type', key).ok
if type == 'hash' then
    local mode = redis.call('hget', key, 'mode')
    if mode == 'read' or mode == 'write' then
        return 'readwrite'
    end
    if redis.call('hlen', key) ~= 1 then
        return ''
    end
    local owner, count = redis.call('hkeys', key)[1], redis.call('hvals', key)[1]
    if not string.match(owner, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') or not string.match(count, '^%d+$') then
        return ''
    end
    if redis.call('exists', 'redisson_lock_token:' .. tag) == 1 then
        return 'fenced'
    end
    return redis.call('exists', 'redisson_lock_queue:' .. tag) == 1 and 'fair' or 'lock'
end
if type ~= 'string' or redis.call('strlen', key) > 20 or not string.match(redis.call('get', key), '^%-?%d+$') then
    return ''
end
if string.match(key, '^redisson_lock_token:') or string.match(key, '^redisson_unlock_latch:') or string.match(key, ':rwlock_timeout:%d+$') then
    return ''
end
return redis.call('type', tag .. ':timeout').ok == 'zset' and 'permits' or 'count'
