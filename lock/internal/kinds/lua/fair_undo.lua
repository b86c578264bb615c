-- Fair lock, undo: takes back an acquire whose outcome its caller does not know, and its place in the queue if it has given up.
-- KEYS  1 lock  2 its channel; a waiter's own has a colon and the waiter behind  3 queue  4 timeouts  5 idle
--       6 latch: keeps the acquire, and this, from taking effect later
-- ARGV  1 lease in ms to go back to when holds remain  2 owner  3 publish command
--       4 hold count that the owner had before  5 when this is too late, in ms since 1970: no earlier than that of the acquire
--       6 wait in ms, as acquire had it  7 1 if the owner goes on waiting: for a hold that is taken back it heads the queue
--       8 not used  9 what release has as its last
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when there was something to take back, else 0; running it again does no harm.
local lock, channel, queue, timeouts, idle, latch = unpack(KEYS)
local lease, owner, publish, before, last, wait, waits, _, counts = unpack(ARGV)
local few, spare, day, uncalled = 32, 60000, 86400000, 10000 -- uncalled: ms within which all ask again
last = tonumber(last)
-- all_undo.lua
-- fair_head.lua
-- fair_deaf.lua
-- fair_tell.lua
local taken, first = tonumber(redis.call('hget', lock, owner) or 0) > tonumber(before), redis.call('lindex', queue, 0)
if taken and tonumber(before) > 0 and tonumber(lease) > 0 then
    redis.call('hset', lock, owner, before)
    redis.call('pexpire', lock, lease)
elseif taken then
    redis.call('del', lock)
end
if waits == '1' and taken and redis.call('exists', lock) == 0 then
    redis.call('lrem', queue, 0, owner) -- one that had the lock as another kind may stand there
    -- Where no queue can be made, as the slot is leaving, the lock is free all the same.
    if type(redis.pcall('lpush', queue, owner)) ~= 'number' then
        return 1
    end
    redis.call('zadd', timeouts, now + wait, owner)
    local life = redis.call('zrange', timeouts, -1, -1, 'withscores')[2] - now + day
    redis.call('pexpire', queue, life)
    redis.call('pexpire', timeouts, life)
elseif waits ~= '1' then
    local soonest, found = now + math.max(redis.call('pttl', lock), 0) + spare, false
    local sooner, behind = tonumber(wait), {}
    for _, waiter in ipairs(redis.call('lrange', queue, -few, -1)) do -- of more the next grant sees to it
        local score = found and tonumber(redis.call('zscore', timeouts, waiter) or nil)
        if score then
            sooner = math.min(sooner, score - soonest)
            table.insert(behind, {score, waiter})
        end
        if waiter == owner then found = true end
    end
    for i = 1, sooner > 0 and #behind or 0 do -- as acquire does
        redis.call('zadd', timeouts, behind[i][1] - sooner, behind[i][2])
    end
    local stood = redis.call('zrem', timeouts, owner) == 1
    if stood then -- from the end that is nearer: most who leave stand in front
        redis.call('lrem', queue, found and -1 or 1, owner)
    end
    local left = redis.call('pttl', lock) -- -2: the lock is free; of a short lease only the head has heard, or who was told in a dead head's place
    if left ~= -1 and left <= uncalled and (taken or first == owner or stood and first and deaf(first)) then tell() end
    if first == owner then redis.call('del', idle) end
end
return taken and 1 or 0
