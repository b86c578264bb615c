-- Any kind, shape: what a key is by its looks.
-- KEYS  1 a key of any type
-- Returns the shape as text: lock, fenced, fair, readwrite, permits, count, or "" for none of them.
local key = KEYS[1]
local tag = string.find(key, '{', 1, true) and key or '{' .. key .. '}'

local function holder(owner, count)
    return string.match(owner, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') and string.match(count, '^%d+$')
end
local function typeOf(other)
    return redis.call('type', other).ok
end

if typeOf(key) == 'hash' then
    local mode = redis.call('hget', key, 'mode')
    if not mode and redis.call('hlen', key) ~= 1 or mode and mode ~= 'read' and mode ~= 'write' then
        return ''
    end
    local fields = redis.call('hgetall', key)
    for i = 1, #fields, 2 do
        local owner = mode and string.gsub(fields[i], ':write$', '') or fields[i]
        if fields[i] ~= 'mode' and not holder(owner, fields[i + 1]) then
            return ''
        end
    end
    if mode then
        return 'readwrite'
    end
    local token = 'redisson_lock_token:' .. tag
    if typeOf(token) == 'string' and string.match(redis.call('get', token), '^%d+$') then
        return 'fenced'
    end
    return typeOf('redisson_lock_queue:' .. tag) == 'list' and 'fair' or 'lock'
end
if typeOf(key) ~= 'string' or redis.call('strlen', key) > 15 or not string.match(redis.call('get', key), '^%-?%d+$') then
    return ''
end
if string.match(key, '^redisson_lock_token:') or string.match(key, '^redisson_unlock_latch:') or string.match(key, ':rwlock_timeout:%d+$') then
    return ''
end
return typeOf(tag .. ':timeout') == 'zset' and 'permits' or 'count'
