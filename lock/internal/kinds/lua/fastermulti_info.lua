-- Faster multi lock, info: the owners of the values at one instant.
-- KEYS  1 group  2 its channel, which is not used
-- ARGV  1 values, with spaces between them; none: all values of the group
-- Returns the owner, the hold count and the remaining lease in ms of each value that is taken. A key of another type or kind is an
--         error.
local group, values = KEYS[1], ARGV[1]

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('hlen', group) == 1 or redis.call('hexists', group, 'mode') == 1 then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
if not values then
    values = ''
    for _, field in ipairs(redis.call('hkeys', group)) do
        values = string.find(field, ':', 1, true) and values or values .. ' ' .. field
    end
end
local holders = {}
for value in string.gmatch(values, '%S+') do
    local holder = redis.call('hget', group, value)
    local hold = holder and value .. ':' .. holder
    local left = hold and (redis.call('hget', group, hold .. ':expire_time') or 0) - now or 0
    if left > 0 then
        table.insert(holders, holder)
        table.insert(holders, redis.call('hget', group, hold .. ':lock_count') or '1')
        table.insert(holders, left)
    end
end
return holders
