-- Plain lock, renew: extends the lease of each lock that its owner still has.
-- KEYS  1.. locks
-- ARGV  1 lease in ms (-2: nothing is changed)  2.. owner of each lock, in the order of the keys
-- Returns a list: 1 renewed, 0 the lock is gone, -1 somebody else has it or the key is no lock.
local lease = tonumber(ARGV[1])
local outcomes = {}

-- all_ask.lua
for i, lock in ipairs(KEYS) do
    local holder = ask('get', lock)
    if holder == ARGV[i + 1] then
        if lease > 0 then
            -- Also where nothing changes: WAIT counts the replicas that have the writes of this connection, and of no other.
            redis.call('pexpire', lock, string.format('%.0f', math.max(redis.call('pttl', lock), lease)))
        end
        outcomes[i] = 1
    else
        outcomes[i] = holder and -1 or 0
    end
end
return outcomes
