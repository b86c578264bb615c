-- Read lock, acquire: takes a hold beside other readers, or beneath the owner's own write lock.
-- KEYS  1 lock: a hash of "mode" to "read" or "write", of each reader to its hold count, and of the writer to its own
--       2 its channel  3 writers that wait: a sorted set of them by when their word ends, in ms
--       4 lease of the owner's first hold  5 latch: there once this very request has been undone
--       6.. leases of the owner's further holds
-- ARGV  1 lease in ms  2 owner  3 1 to let writers that wait go first  4 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         nil for the first hold, the hold count as a status for a further one,
--         and otherwise the time in ms after which there is reason to look again (-1: none).
local lock, writers, latch = KEYS[1], KEYS[3], KEYS[5]
local lease, owner, polite, last = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
-- The n-th hold of a reader has its lease in a key of its own: all clients compute from these how long the lock is kept.
local hold = (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}') .. ':' .. owner .. ':rwlock_timeout:'

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > last then
    return redis.status_reply('late ' .. string.format('%.0f', now))
end
local unused = redis.call('exists', lock, latch) == 0 -- one question in place of three
if not unused and redis.call('exists', latch) == 1 then
    return -1 -- undone: nobody waits for this any more
end
local mode, holds = nil, nil
if not unused then
    mode, holds = unpack(redis.call('hmget', lock, 'mode', owner))
end
if not unused and not mode then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
if mode and mode ~= 'read' and redis.call('hexists', lock, owner .. ':write') == 0 then
    return redis.call('pttl', lock)
end
local count, alive = tonumber(holds or 0), false
for n = 1, count do
    alive = alive or redis.call('exists', hold .. n) == 1
end
if not alive then
    count = 0 -- holds whose leases have all ended are none
    local ends = polite == '1' and mode ~= 'write' and redis.call('zrevrange', writers, 0, 0, 'withscores')[2]
    if ends and tonumber(ends) > now then
        return ends - now
    end
end
count = count + 1
redis.call('hset', lock, 'mode', mode or 'read', owner, count)
redis.call('set', hold .. count, 1, 'px', lease)
if unused or redis.call('pttl', lock) < tonumber(lease) then
    redis.call('pexpire', lock, lease)
end
if count > 1 then
    return redis.status_reply(string.format('%d', count))
end
return nil
