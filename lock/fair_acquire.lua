-- Fair lock, acquire: takes the lock for an owner whose turn it is, or who has it; anybody else may stand in line.
-- KEYS  1 lock: a hash of the owner to its hold count  2 its channel  3 queue: a list of who waits
--       4 timeouts: until when each of them counts as alive, in ms of the server's clock
--       5 idle: who heads the queue of the free lock  6 latch: there once this very request has been undone
-- ARGV  1 lease in ms  2 owner  3 wait in ms: its deadline lies so far behind the last one's  4 1 to stand in line
--       5 1 if it may have further holds
-- Returns nil for the first hold, the hold count as a status for a further one, "reentry" if there may be none, else the
--         remaining lease of the holder in ms (0: the lock is free and it is somebody else's turn; -1: it has none).
local lock, _, queue, timeouts, idle, latch = unpack(KEYS)
local lease, owner, wait, stands, reenters = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5] == '1'
local time = redis.call('time')
local now, spare = time[1] * 1000 + math.floor(time[2] / 1000), 60000

local function head() -- drops those whose time is up, and those who have none
    local first = redis.call('lindex', queue, 0)
    if not first or first == owner or tonumber(redis.call('zscore', timeouts, first) or 0) > now then
        return first
    end
    redis.call('lpop', queue)
    redis.call('zrem', timeouts, first)
    return head()
end

if latch and redis.call('exists', latch) == 1 then
    return -1 -- late: nobody waits for this any more
elseif redis.call('hexists', lock, owner) == 1 then
    if not reenters then return redis.status_reply('reentry') end
    local count = redis.call('hincrby', lock, owner, 1)
    redis.call('pexpire', lock, math.max(redis.call('pttl', lock), lease)) -- never shorter than those it is nested in
    return redis.status_reply(string.format('%d', count))
end
local first, left = head(), redis.call('pttl', lock)
if left == -2 and (not first or first == owner) then
    redis.call('del', idle, first and idle or timeouts) -- without a queue there is no deadline
    redis.call('lpop', queue)
    redis.call('zrem', timeouts, owner)
    local others = redis.call('zrange', timeouts, 0, -1, 'withscores')
    for i = 1, #others, 2 do -- as Redisson does, but leaving each of them the time to put its own off
        local score = tonumber(others[i + 1])
        redis.call('zadd', timeouts, math.max(score - wait, math.min(score, now + lease + spare)), others[i])
    end
    redis.call('hincrby', lock, owner, 1)
    redis.call('pexpire', lock, lease)
    return nil
end
local score, known = tonumber(redis.call('zscore', timeouts, owner) or 0), 0
for _, waiter in ipairs(stands and redis.call('lrange', queue, 0, -1) or {}) do
    if waiter == owner then known = 1 end
end
if stands and (known == 0 or score < now + math.min(wait, spare / 2)) then
    local last = known == 0 and redis.call('lindex', queue, -1)
    local behind = tonumber(last and redis.call('zscore', timeouts, last) or 0)
    redis.call('zadd', timeouts, math.max(behind, now + math.max(left, 0)) + wait, owner)
    if known == 0 then redis.call('rpush', queue, owner) end
    local life = redis.call('zrange', timeouts, -1, -1, 'withscores')[2] - now + lease
    redis.call('pexpire', queue, math.max(redis.call('pttl', queue), life))
    redis.call('pexpire', timeouts, math.max(redis.call('pttl', timeouts), life))
end
return left == -2 and 0 or left
