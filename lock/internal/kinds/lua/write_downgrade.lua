-- Write lock, downgrade: turns one write hold into a read hold of the same owner.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 lease of the owner's first hold as a reader
--       5 latch: there once this very request has been undone  6.. leases of the owner's further holds as a
--       reader, and behind them the line, if there is one
-- ARGV  1 lease in ms of the read hold  2 owner, as a reader  3 publish command
--       4 lease in ms that the owner's remaining write holds need (0: none is alive any more)
--       5 when this is too late, in ms since 1970  6 what the server knows of listeners  7 client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         a list of how many read holds the owner has now and how many write holds; "unheld" as a status if it had none
--         of these, and -1 if the request has been undone.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[5]
local lease, owner, publish, writeLease, last = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local prefix, writer = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}', owner .. ':write'
local hold = prefix .. ':' .. owner .. ':rwlock_timeout:'
local line = KEYS[#KEYS] == 'lockwire_line:' .. prefix and KEYS[#KEYS]

-- all_late.lua
-- all_line.lua
if redis.call('exists', latch) == 1 then
    return -1
end
local writes = tonumber(redis.call('hget', lock, writer))
if not writes then
    return redis.status_reply('unheld')
end
local rest = writeLease > 0 and writes - 1 or 0
local count, left = tonumber(redis.call('hget', lock, owner) or 0), 0
for n = 1, count do
    left = math.max(left, redis.call('pttl', hold .. n))
end
count = left > 0 and count + 1 or 1 -- holds whose leases have all ended are none
redis.call('pexpire', latch, 1) -- a write that needs no memory: a full server refuses none behind it
-- The write hold goes last: a user without one of the rights still has it.
redis.call('set', hold .. count, 1, 'px', lease)
if rest > 0 then
    redis.call('hset', lock, writer, rest, owner, count)
else
    redis.call('hset', lock, 'mode', 'read', owner, count)
    if type(redis.pcall('hdel', lock, writer)) == 'table' then
        redis.call('hset', lock, 'mode', 'write', owner, count - 1) -- or else others would read beside the writer
        redis.call('hdel', lock, writer) -- refused again: the error of the script
    end
end
redis.call('pexpire', lock, math.max(left, tonumber(lease), rest > 0 and writeLease or 0))
if rest == 0 then
    tellFree(line, channel, publish, ARGV[6], ARGV[7], '1', 1 - share) -- readers that wait may have it now
end
return {count, rest}
