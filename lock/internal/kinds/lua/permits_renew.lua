-- Permit semaphore, renew: extends the lease of permits that are still taken.
-- KEYS  1.. permits that are taken of semaphores, and no other key: the two need not be on one node while their slot migrates
-- ARGV  1 lease in ms (-2: nothing is changed)  2.. ids of each, one behind the other, in the order of the keys
-- Returns a list: 1 renewed, 0 at least one is not taken any more, -1 the key holds something else.
local lease = tonumber(ARGV[1])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local outcomes = {}

-- all_ask.lua
for i, permits in ipairs(KEYS) do
    local ids = ARGV[i + 1]
    outcomes[i] = 1
    for n = 1, #ids, 16 do
        local ends = ask('zscore', permits, string.sub(ids, n, n + 15))
        if type(ends) == 'table' then
            outcomes[i] = -1
        elseif (not ends or tonumber(ends) <= now) and outcomes[i] == 1 then
            outcomes[i] = 0
        end
    end
    if outcomes[i] == 1 and lease > 0 then
        -- A write that needs no memory: after it a server that has run out of that does not refuse the others.
        redis.call('zrem', permits, '')
        -- Also where nothing changes: WAIT counts the replicas that have the writes of this connection, and of no other.
        redis.call('zadd', permits, now, '')
        redis.call('zrem', permits, '')
    end
    for n = 1, outcomes[i] == 1 and #ids or 0, 16 do
        local id = string.sub(ids, n, n + 15)
        if tonumber(redis.call('zscore', permits, id)) < now + lease then
            redis.call('zadd', permits, now + lease, id)
        end
    end
end
return outcomes
