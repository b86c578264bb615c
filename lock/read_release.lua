-- Read lock, release: gives one hold back, and the lock with the last one of all readers.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 lease of the owner's first hold
--       5 latch: the outcome of this very request, should it be repeated  6.. leases of the owner's further holds
--       Those of other readers, whom nobody knows before, are asked for where the server allows it.
-- ARGV  1 lease in ms that the owner's remaining holds need (0: none is alive any more)
--       2 owner  3 publish command  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later
-- Returns 1 when the owner has no read hold any more, 0 when it has further ones, nil when it had none.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[5]
local lease, owner, publish, lifetime, repeated = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local hold = prefix .. ':' .. owner .. ':rwlock_timeout:'

local function longest(fields, enough) -- the longest lease in ms of these readers, or one that is enough; nil: not to be known
    local left = 0
    for i = 1, #fields, 2 do
        for n = 1, left < enough and tonumber(fields[i + 1]) or 0 do
            local lasts = redis.pcall('pttl', prefix .. ':' .. fields[i] .. ':rwlock_timeout:' .. n)
            if type(lasts) ~= 'number' then return nil end
            left = math.max(left, lasts)
        end
    end
    return left
end

local function remaining(gone) -- for how many ms readers have the lock, without one who had it for that long
    local kept, few = redis.call('pttl', lock), 32
    if kept > 0 and redis.call('hlen', lock) > few then -- somebody who stays for nearly as long is as good as the longest
        local enough = kept - kept / 4
        local left = gone < enough and kept or longest(redis.call('hscan', lock, 0, 'count', few)[2], enough)
        if not left or left >= enough then return math.max(kept, left or 0) end
    end
    return longest(redis.call('hgetall', lock), math.huge) or kept
end

local outcome = redis.call('get', latch)
if outcome then
    return outcome ~= '-1' and tonumber(outcome) or nil
end
local mode = redis.call('hget', lock, 'mode')
local count, had = mode and tonumber(redis.call('hget', lock, owner)), 0
if not count then
    redis.call('del', KEYS[4], unpack(KEYS, 6))
    if repeated == '1' then
        redis.call('set', latch, -1, 'px', lifetime)
    end
    return nil
end
local rest = tonumber(lease) > 0 and count - 1 or 0
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
for n = rest + 1, count do
    had = math.max(had, redis.call('pttl', hold .. n))
    redis.call('del', hold .. n)
end
for n = 1, rest do
    redis.call('set', hold .. n, 1, 'px', lease) -- whose lease was whose, the server does not know
    redis.call('pexpire', lock, math.max(tonumber(lease), redis.call('pttl', lock)))
end
if rest > 0 then
    redis.call('hset', lock, owner, rest)
else
    redis.call('hdel', lock, owner)
end
local left = mode == 'read' and remaining(had)
if left and left > 0 then
    redis.call('pexpire', lock, left)
elseif left == 0 then
    redis.call('del', lock)
    redis.pcall(publish, channel, '0') -- a user who may not publish leaves waiters to look by themselves
end -- beneath its owner's write lock, whose lease the server does not know, nothing is shortened
redis.call('set', latch, rest > 0 and 0 or 1, 'px', lifetime)
return rest > 0 and 0 or 1
