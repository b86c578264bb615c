-- Fair lock, deaf: whether a waiter has no listener, at the line that names this file.
-- It uses the script's channel, publish and counts, as fair_tell.lua.
local function deaf(waiter) -- an error says nothing
    local numsub = publish == 'SPUBLISH' and 'shardnumsub' or 'numsub'
    return counts == '1' and redis.pcall('pubsub', numsub, channel .. ':' .. waiter)[2] == 0
end
