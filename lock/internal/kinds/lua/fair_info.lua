-- Fair lock, info: what there is to see of the lock and its queue at one instant.
-- KEYS  1 lock  2 its channel  3 queue  4 timeouts
-- Returns the number of waiters, each of them and how long it counts as alive in ms, the remaining lease in ms
--         (-1: none, -2: not locked), then owner and hold count in turn.
local lock, _, queue, timeouts = unpack(KEYS)
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- reentrant_holder.lua
local waiters, info = redis.call('lrange', queue, 0, -1), {}
info[1] = #waiters
for i, waiter in ipairs(waiters) do
    info[2 * i] = waiter
    info[2 * i + 1] = math.max(tonumber(redis.call('zscore', timeouts, waiter) or 0) - now, 0)
end
table.insert(info, redis.call('pttl', lock))
for _, value in ipairs(holder) do
    table.insert(info, value)
end
return info
