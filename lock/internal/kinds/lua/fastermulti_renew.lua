-- Faster multi lock, renew: extends the leases of all values of each owner who still has them all.
-- KEYS  1.. groups
-- ARGV  1 lease in ms (-2: nothing is changed)  2.. owner and values of each, with spaces between them, in the order of the keys
-- Returns a list: 1 renewed, 0 at least one value is not taken any more, -1 somebody else has one, or the key is no group.
local lease = tonumber(ARGV[1])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local outcomes = {}

-- all_ask.lua
for i, group in ipairs(KEYS) do
    local owner, values = string.match(ARGV[i + 1], '^(%S+) (.*)$')
    outcomes[i] = 1
    for value in string.gmatch(values, '%S+') do
        local holder = ask('hget', group, value)
        local ends = holder == owner and redis.call('hget', group, value .. ':' .. owner .. ':expire_time')
        if holder and holder ~= owner then
            outcomes[i] = -1
        elseif (not ends or tonumber(ends) <= now) and outcomes[i] == 1 then
            outcomes[i] = 0
        end
    end
    if outcomes[i] == 1 and lease > 0 then
        -- A write that needs no memory: after it a server that has run out of that does not refuse the others.
        -- Also where nothing changes: WAIT counts the replicas that have the writes of this connection, and of no other.
        redis.call('pexpire', group, string.format('%.0f', math.max(redis.call('pttl', group), lease)))
        for value in string.gmatch(values, '%S+') do
            local ends = value .. ':' .. owner .. ':expire_time'
            if tonumber(redis.call('hget', group, ends)) < now + lease then
                redis.call('hset', group, ends, string.format('%.0f', now + lease))
            end
        end
    end
end
return outcomes
