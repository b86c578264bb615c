-- Read-write lock, info: what there is to see of the lock at one instant.
-- KEYS  1 lock  2 its channel  3 writers that wait
-- Returns the remaining lease in ms (-1: none, -2: not locked), the mode, then of each holder in turn the owner, the hold
--         count, and the remaining lease in ms (of a reader's holds the longest; 0: all have ended).
local lock = KEYS[1]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'

local left, mode = redis.call('pttl', lock), redis.call('hget', lock, 'mode')
if left ~= -2 and mode ~= 'read' and mode ~= 'write' then -- before its numbers are taken for hold counts
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
local fields, info = redis.call('hgetall', lock), {left, mode or ''}
for i = 1, #fields, 2 do
    local owner, count = fields[i], fields[i + 1]
    if owner ~= 'mode' then
        local longest = string.sub(owner, -6) == ':write' and left or 0
        for n = 1, tonumber(count) or 0 do
            -- pcall: a server may refuse keys that are not known before.
            local lasts = redis.pcall('pttl', prefix .. ':' .. owner .. ':rwlock_timeout:' .. n)
            longest = math.max(longest, type(lasts) == 'number' and lasts or left)
        end
        table.insert(info, owner)
        table.insert(info, count)
        table.insert(info, longest)
    end
end
return info
