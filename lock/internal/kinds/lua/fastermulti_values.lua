-- Faster multi lock, values: what stands in the release and the undo, at the line that names this file.
-- It uses their group, owner, values and now.

-- giveBack gives the values of the owner back, except for what stays: for each value the hold count and the lease in ms, with spaces between
-- them (0: nothing). It returns whether the owner had all values, whether one is free now that was taken, whether waiters know of a lease that
-- is a second longer than now, and whether the owner keeps holds.
local function giveBack(stays)
    local kept, at, held, freed, shorter, keeps = {}, 1, true, false, false, false
    for number in string.gmatch(stays, '%d+') do
        table.insert(kept, tonumber(number))
    end
    for value in string.gmatch(values, '%S+') do
        local hold, count, lease = value .. ':' .. owner, kept[at] or 0, kept[at + 1] or 0
        at = at + 2
        local holder, ends = unpack(redis.call('hmget', group, value, hold .. ':expire_time'))
        local mine = holder == owner
        ends = tonumber(ends or 0)
        held = held and mine and ends > now
        if mine and ends > now and count > 0 then
            redis.call('hdel', group, '') -- a write that needs no memory: a full server refuses none behind it
            redis.call('hset', group, hold .. ':expire_time', string.format('%.0f', now + lease), hold .. ':lock_count', count)
            if redis.call('pttl', group) < lease then
                redis.call('pexpire', group, lease)
            end
            shorter, keeps = shorter or ends > now + lease + 1000, true
        else
            redis.call('hdel', group, hold .. ':expire_time', hold .. ':lock_count', unpack(mine and {value} or {}))
            freed = freed or mine
        end
    end
    return held, freed, shorter, keeps
end
