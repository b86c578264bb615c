-- Permit semaphore, lease: tells how long a permit is still taken, or changes that.
-- KEYS  1 semaphore  2 its channel  3 permits that are taken
-- ARGV  1 id  2 lease in ms from now on (-1: for ever, 0: nothing is changed)  3 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         the lease in ms that the permit has then (-1: it never ends), nil when it is not taken.
local permits = KEYS[3]
local id, lease, last = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local never = '922337203685477' -- as Redisson has it

-- all_late.lua
local ends = tonumber(redis.call('zscore', permits, id) or 0)
if ends <= now then
    return nil
end
if lease < 0 then
    redis.call('zadd', permits, never, id)
    return -1
elseif lease > 0 then
    redis.call('zadd', permits, now + lease, id)
    return lease
end
return ends < tonumber(never) and ends - now or -1
