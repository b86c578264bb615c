-- Read lock, renew: extends the leases of each reader that has its lock yet, and with them the lock's.
-- KEYS  1.. locks  .. behind them the leases of these holds
-- ARGV  1 lease in ms (-2: nothing is changed)  2.. owner of each lock, in the order of the keys
-- Returns a list: 1 renewed, 0 the lock is gone or all leases of the owner's holds have ended,
--         -1 somebody else has it or the key is no lock.
local lease = tonumber(ARGV[1])
local outcomes, leases = {}, {}
-- all_ask.lua
for n = #ARGV, #KEYS do
    leases[KEYS[n]] = true -- of the holds known to the client: a hold that has come since has its whole lease
end

local function extend(key)
    local left = redis.call('pttl', key)
    if left ~= -1 and lease > 0 then
        -- Also where nothing changes: WAIT counts the replicas that have the writes of this connection, and of no other.
        redis.call('pexpire', key, string.format('%.0f', math.max(left, lease)))
    end
    return left ~= -2
end

for i = 1, #ARGV - 1 do
    local lock = KEYS[i]
    local held = ask('hmget', lock, 'mode', ARGV[i + 1])
    if held[1] and held[2] then
        local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
        outcomes[i] = 0
        for n = 1, tonumber(held[2]) do
            local hold = prefix .. ':' .. ARGV[i + 1] .. ':rwlock_timeout:' .. n
            if leases[hold] and extend(hold) then
                outcomes[i] = 1
            end
        end
        if outcomes[i] == 1 then
            extend(lock)
        end
    else
        outcomes[i] = -redis.call('exists', lock)
    end
end
return outcomes
