-- Any kind, shape: what a key is by its looks.
-- KEYS  1 a key of any type  2 the last token, if it is a fenced lock  3 the queue, if it is a fair one
--       4 the permits that are taken, if it is a semaphore that has such
-- Returns the shape as text: lock, fenced, fair, readwrite, fastermulti, plain, permits, or "" for none of them.
local key, token, queue, permits = unpack(KEYS)

local function holder(owner, count)
    return string.match(owner, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') and string.match(count, '^%d+$')
end
local function typeOf(other)
    return redis.call('type', other).ok
end
local function value(field, text) -- of a faster multi lock: the owner, or behind the value and the owner a number
    local name, owner, part = string.match(field, '^([%w+/]+):(.+):(%l+_%l+)$')
    if name then
        return #name == 22 and holder(owner, text) and (part == 'expire_time' or part == 'lock_count')
    end
    return #field == 22 and string.match(field, '^[%w+/]+$') and holder(text, '1')
end

if typeOf(key) == 'hash' then
    local mode = redis.call('hget', key, 'mode')
    if not mode and redis.call('hlen', key) ~= 1 then
        local some = redis.call('hscan', key, 0)[2] -- the hash may be large
        for i = 1, #some, 2 do
            if not value(some[i], some[i + 1]) then
                return ''
            end
        end
        return #some > 0 and 'fastermulti' or ''
    elseif mode and mode ~= 'read' and mode ~= 'write' then
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
    if typeOf(token) == 'string' and string.match(redis.call('get', token), '^%d+$') then
        return 'fenced'
    end
    return typeOf(queue) == 'list' and 'fair' or 'lock'
end
if typeOf(key) ~= 'string' or redis.call('strlen', key) > 64 then
    return ''
end
local value = redis.call('get', key)
if string.match(key, '^redisson_') or string.match(key, ':rwlock_timeout:%d+$') then
    return ''
elseif string.match(value, '^%-?%d+$') then -- which by itself may be anything
    return typeOf(permits) == 'zset' and 'permits' or ''
end
-- A plain lock has a lease, and a value that looks random: an owner of ours or another UUID, or 16 bytes or more in base64 or as digits.
local random = holder(value, '1') or string.match(value, '^%x+%-%x+%-%x+%-%x+%-%x+$') or
    string.match(value, '^[%w+/_%-]+=?=?$') and #value >= 22 and string.match(value, '%d') and string.match(value, '%a')
return random and redis.call('pttl', key) > 0 and 'plain' or ''
