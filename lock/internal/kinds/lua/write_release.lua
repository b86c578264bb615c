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
--         1 when the owner has no write hold any more, 4 when moreover clients wait that know nothing of the line, 0 when it has further
--         holds, nil when it had none.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[5]
local lease, owner, publish, lifetime, repeated = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local last, heard, stand = tonumber(ARGV[6]), 7, ARGV[10]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local line = KEYS[#KEYS] == 'lockwire_line:' .. prefix and KEYS[#KEYS]

-- all_repeat.lua
local reader = string.sub(owner, 1, -7)
local holds, reads = unpack(redis.call('hmget', lock, owner, reader))
-- all_unheld.lua
local rest = lease > 0 and holds - 1 or 0
-- write_leave.lua
local result, message, available, before = rest > 0 and 0 or 1, rest == 0 and '1', left > 0 and 63 / 64 or 1, nil -- all, or all but the share of readers
if redis.pcall('set', latch, result == 1 and '1' or '0', 'px', lifetime).err then
    if rest > 0 then redis.call('hset', lock, owner, holds) end -- or else a repeat, or an earlier request, would end another hold
    redis.call('set', latch, '0', 'px', lifetime) -- refused again: the error of the script
end
local quiet = not message and stand == '' or stand ~= 'move' and (not line or redis.call('exists', line) == 0)
-- all_tell.lua
