-- Faster multi lock, force: frees the values whoever has them.
-- KEYS  1 group  2 its channel
-- ARGV  1 publish command  2 when this is too late, in ms since 1970  3 values, with spaces between them
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when one of them was taken, else 0. A key of another type or kind is an error and stays.
local group, channel = KEYS[1], KEYS[2]
local publish, last, values = ARGV[1], tonumber(ARGV[2]), ARGV[3]

-- all_late.lua
if redis.call('hlen', group) == 1 or redis.call('hexists', group, 'mode') == 1 then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
local taken = 0
for value in string.gmatch(values, '%S+') do
    local holder = redis.call('hget', group, value)
    if holder then
        local hold = value .. ':' .. holder
        if tonumber(redis.call('hget', group, hold .. ':expire_time') or 0) > now then
            taken = 1
        end
        redis.call('hdel', group, value, hold .. ':expire_time', hold .. ':lock_count')
    end
end
if taken == 1 then
    redis.pcall(publish, channel, '0')
end
return taken
