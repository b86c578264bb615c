-- Fair lock, acquire: takes the lock for an owner whose turn it is, or who has it; anybody else may stand in line.
-- KEYS  1 lock: a hash of the owner to its hold count  2 its channel  3 queue: a list of who waits
--       4 timeouts: until when each of them counts as alive, in ms of the server's clock
--       5 idle: who heads the queue of the free lock  6 latch: there once this very request has been undone
-- ARGV  1 lease in ms  2 owner  3 wait in ms: its deadline lies so far behind the last one's  4 1 to stand in line
--       5 1 if it may have further holds  6 when this is too late, in ms since 1970
--       7 what the server knows of listeners (0: only some of them)  8 publish command
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         nil for the first hold, the hold count as a status for a further one, "reentry" if there may be none, else the
--         remaining lease of the holder in ms, and 100 ms for each who waits in front, about (0: the lock is free and it is somebody
--         else's turn; -1: it has none).
local lock, channel, queue, timeouts, idle, latch = unpack(KEYS)
local lease, owner, wait, stands, last = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[6])
local counts, publish = ARGV[7] ~= '0' and '1', ARGV[8]
local few, spare, day, uncalled = 32, 60000, 86400000, 10000 -- uncalled: ms within which all ask again
-- all_late.lua
if redis.call('exists', lock, queue, timeouts, idle, latch) == 0 then -- one question in place of many: nobody has it, nobody waits
    redis.call('hincrby', lock, owner, '1')
    redis.call('pexpire', lock, lease)
    return nil
end
-- fair_head.lua
-- fair_deaf.lua
-- fair_tell.lua
local function sort() -- after somebody has interfered: each waiter stands in the queue once, and nobody else has a time
    local line, stood = redis.call('lrange', queue, 0, -1), {}
    for i = #line, 1, -1 do
        if stood[line[i]] or line[i] ~= owner and not redis.call('zscore', timeouts, line[i]) then
            redis.call('lrem', queue, -1, line[i])
        end
        stood[line[i]] = true
    end
    for _, waiter in ipairs(redis.call('zrange', timeouts, 0, -1)) do
        if not stood[waiter] then redis.call('zrem', timeouts, waiter) end
    end
    return stood[owner]
end

if redis.call('exists', latch) == 1 then return -1 end -- undone: nobody waits for this any more
if redis.call('hexists', lock, owner) == 1 then
    if ARGV[5] ~= '1' then return redis.status_reply('reentry') end
    local count = redis.call('hincrby', lock, owner, 1)
    redis.call('pexpire', lock, math.max(redis.call('pttl', lock), lease)) -- never shorter than those it is nested in
    if stands and redis.call('zrem', timeouts, owner) == 1 then redis.call('lrem', queue, 1, owner) end -- it has the lock as another kind
    return redis.status_reply(string.format('%d', count))
end
local first, left, known = head(owner), redis.call('pttl', lock), redis.call('zscore', timeouts, owner)
local score, waiting = tonumber(known or 0), redis.call('zcard', timeouts)
if left == -2 and (not first or first == owner) then
    redis.call('del', idle, first and idle or timeouts) -- without a queue there is no deadline
    redis.call('lpop', queue)
    redis.call('zrem', timeouts, owner)
    local sooner = score - now - lease -- what is left of its own time, and of theirs who went before
    local due = waiting <= few or sooner > waiting / 8 * math.max(wait, spare) -- of many not at each grant
    local others = due and redis.call('zrange', timeouts, 0, -1, 'withscores') or {}
    -- All by the same time, or Redisson's grants, which take its wait from each, drop those who have put less between themselves and the one
    -- in front. Each keeps the time to put its own off.
    sooner = others[2] and math.min(sooner, others[2] - now - lease - spare) or 0
    for i = 1, sooner > 0 and #others or 0, 2 do
        redis.call('zadd', timeouts, others[i + 1] - sooner, others[i])
    end
    redis.call('hincrby', lock, owner, '1')
    redis.call('pexpire', lock, lease)
    if lease <= uncalled then tell() end -- who waits may count on an earlier holder's lease, which is longer
    return nil
end
if stands and redis.call('llen', queue) ~= waiting then known = sort() end
if stands and (not known or score < now + math.min(wait, spare / 2)) then
    local hindmost = not known and redis.call('lindex', queue, -1)
    local behind = tonumber(hindmost and redis.call('zscore', timeouts, hindmost) or 0)
    redis.call('zadd', timeouts, math.max(behind, now + math.max(left, 0)) + wait, owner)
    if not known then redis.call('rpush', queue, owner) end
    local life = redis.call('zrange', timeouts, -1, -1, 'withscores')[2] - now + day -- Redisson's have none
    redis.call('pexpire', queue, life)
    redis.call('pexpire', timeouts, life)
end
-- Not all ask when the lease ends by itself. Who stands in the queue has its time so far behind the first.
local time, front = redis.call('zscore', timeouts, owner), redis.call('zscore', timeouts, first or '')
local ahead = left > 0 and time and front and math.floor((time - front) / math.max(1, wait)) or 0
return left == -2 and 0 or left + math.max(0, math.min(uncalled, 100 * ahead))
