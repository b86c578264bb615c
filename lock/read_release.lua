-- Read lock, release: gives one hold back, and the lock with the last one of all readers.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 latch: the outcome of this very request, should it be repeated
-- ARGV  1 lease in ms that the owner's remaining holds need (0: none is alive any more)
--       2 owner  3 publish command  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later
-- Returns 1 when the owner has no read hold any more, 0 when it has further ones, nil when it had none.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[4]
local lease, owner, publish, lifetime, repeated = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local hold = prefix .. ':' .. owner .. ':rwlock_timeout:'
-- longest is the lease that of all readers the last to go has left.
local function longest()
    local left, fields = 0, redis.call('hgetall', lock)
    for i = 1, #fields, 2 do
        for n = 1, tonumber(fields[i + 1]) or 0 do
            left = math.max(left, redis.call('pttl', prefix .. ':' .. fields[i] .. ':rwlock_timeout:' .. n))
        end
    end
    return left
end

local outcome = redis.call('get', latch)
if outcome then
    return outcome ~= '-1' and tonumber(outcome) or nil
end
local mode = redis.call('hget', lock, 'mode')
local count = mode and tonumber(redis.call('hget', lock, owner))
if not count then
    local n = 1
    while redis.call('del', hold .. n) == 1 do
        n = n + 1
    end
    if repeated == '1' then
        redis.call('set', latch, -1, 'px', lifetime)
    end
    return nil
end
local rest = tonumber(lease) > 0 and count - 1 or 0
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
for n = rest + 1, count do
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
local left = mode == 'read' and longest()
if left and left > 0 then
    redis.call('pexpire', lock, left)
elseif left then
    redis.call('del', lock)
    redis.pcall(publish, channel, '0') -- a user who may not publish leaves waiters to look by themselves
end -- beneath its owner's write lock, whose lease the server does not know, nothing is shortened
redis.call('set', latch, rest > 0 and 0 or 1, 'px', lifetime)
return rest > 0 and 0 or 1
