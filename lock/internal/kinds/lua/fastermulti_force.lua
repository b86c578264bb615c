-- Faster multi lock, force: frees the values whoever has them.
-- KEYS  1 group  2 its channel  3 line, if there is one
-- ARGV  1 publish command  2 when this is too late, in ms since 1970  3 values, with spaces between them
--       4 what the server knows of listeners  5 not used
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when one of them was taken, else 0. A key of another type or kind is an error and stays.
local group, channel, line = KEYS[1], KEYS[2], KEYS[3]
local publish, last, values, counted = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

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
-- all_line.lua
-- fastermulti_line.lua
-- fastermulti_next.lua
-- fastermulti_dead.lua
-- fastermulti_call.lua
if taken == 1 then
    callForValues(line, channel, publish, counted, values)
end
return taken
