-- Permit semaphore, force: frees all permits, whoever has them.
-- KEYS  1 semaphore  2 its channel  3 permits that are taken  4 line, if there is one
-- ARGV  1 publish command  2 when this is too late, in ms since 1970
--       3 what the server knows of listeners  4 client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when there were any, else 0. A key of another type is an error and stays.
local semaphore, channel, permits, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local publish, last = ARGV[1], tonumber(ARGV[2])

-- all_late.lua
-- all_line.lua
-- all_number.lua
local taken = redis.call('zcard', permits)
if taken == 0 then
    return 0
end
redis.call('zrem', permits, '') -- a write that needs no memory: a full server refuses none behind it
local total = redis.call('incrby', semaphore, taken)
if type(redis.pcall('del', permits)) == 'table' then
    redis.call('incrby', semaphore, -taken) -- they stay taken; this right is there
    redis.call('del', permits) -- refused again: the error of the script
end
tellFree(line, channel, publish, ARGV[3], ARGV[4], math.max(0, total), total, total - taken)
return 1
