-- Read lock, release: gives one hold back, and the lock with the last one of all readers.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 lease of the owner's first hold
--       5 latch: the outcome of this very request, should it be repeated  6.. leases of the owner's further holds, then the line, if any
--       Those of other readers, whom nobody knows before, are asked for where the server allows it.
-- ARGV  1 lease in ms that the owner's remaining holds need (0: none is alive any more)
--       2 owner  3 publish command  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later  6 when this is too late, in ms since 1970
--       (0: never; it is the first request of an owner that never has another hold)
--       7 what the server knows of listeners  8 client's id  9 its place in the line  10 what becomes of it: "leave", "move", ''
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the owner has no read hold any more, 4 when moreover clients wait that know nothing of the line and have been told,
--         0 when it has further holds, nil when it had none.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[5]
local lease, owner, publish, lifetime, repeated, last = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local heard, stand = 7, ARGV[10]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local line = KEYS[#KEYS] == 'lockwire_line:' .. prefix and KEYS[#KEYS]
local hold = prefix .. ':' .. owner .. ':rwlock_timeout:'
-- read_leave.lua
-- all_repeat.lua
local mode, holds = unpack(redis.call('hmget', lock, 'mode', owner))
holds = mode and tonumber(holds)
if not holds then
    redis.call('del', KEYS[4], unpack(KEYS, 6, line and #KEYS - 1 or #KEYS))
end
-- all_unheld.lua
local rest = tonumber(lease) > 0 and holds - 1 or 0
local result, freed = rest > 0 and 0 or 1, true
if rest == 0 and holds == 1 and mode == 'read' and redis.call('hlen', lock) == 2 then -- the last of all readers
    redis.call('del', lock, hold .. 1)
else freed = leave(holds, rest) end
if redis.pcall('set', latch, result == 1 and '1' or '0', 'px', lifetime).err then
    if rest > 0 then redis.call('hset', lock, owner, holds) end -- or else a repeat, or an earlier request, would end another hold
    redis.call('set', latch, '0', 'px', lifetime) -- refused again: the error of the script
end
local message, available, before = freed and '0', 1, nil
local quiet = not message and stand == '' or stand ~= 'move' and (not line or redis.call('exists', line) == 0)
-- all_tell.lua
