-- Write lock, release: gives one hold back, and the lock with the last one, but for what its owner reads beneath it.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 lease of the owner's first hold as a reader
--       5 latch: the outcome of this very request, should it be repeated  6.. leases of the owner's further holds as a
--       reader, and behind them the line, if there is one
-- ARGV  1 lease in ms that the owner's remaining write holds need (0: none is alive any more)
--       2 owner, with ":write" behind  3 publish command  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later
--       6 when this is too late, in ms since 1970 (0: never; it is the first request of an owner that never has another hold)
--       7 what the server knows of listeners  8 client's id  9 its place in the line
--       10 what becomes of it: ended ("leave"), moved to the end ("move") or nothing ('')
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the owner has no write hold any more, 0 when it has further ones, nil when it had none.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[5]
local lease, owner, publish, lifetime, repeated = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local last, counted, id, place, stand = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local line = KEYS[#KEYS] == 'lockwire_line:' .. prefix and KEYS[#KEYS]

-- all_repeat.lua
local left, reader = 0, string.sub(owner, 1, -7)
local count, reads = unpack(redis.call('hmget', lock, owner, reader))
if not count then
    if repeated == '1' then
        redis.call('del', latch) -- a write that needs no memory: a full server refuses none behind it
        redis.call('set', latch, -1, 'px', lifetime)
    end
    return nil
end
-- left is the longest lease that the owner has as a reader: beneath a write lock there is no other reader.
for n = 1, tonumber(reads or 0) do
    left = math.max(left, redis.call('pttl', prefix .. ':' .. reader .. ':rwlock_timeout:' .. n))
end
local rest = lease > 0 and count - 1 or 0
local result, message, available, before = rest > 0 and 0 or 1, rest == 0 and '1', left > 0 and 63 / 64 or 1, nil -- all, or all but the share of readers
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
if rest > 0 then
    redis.call('pexpire', lock, math.max(lease, left))
    redis.call('hincrby', lock, owner, -1)
elseif left > 0 then
    redis.call('hdel', lock, owner)
    redis.call('hset', lock, 'mode', 'read')
    redis.call('pexpire', lock, left)
else
    redis.call('del', lock)
end
redis.call('set', latch, result, 'px', lifetime)
local quiet = not message and stand == '' or stand ~= 'move' and (not line or redis.call('exists', line) == 0)
-- all_tell.lua
