-- Fair lock, force: frees the lock whoever has it, and tells who heads the queue, which stays.
-- KEYS  1 lock  2 its channel; a waiter's own has a colon and the waiter behind  3 queue  4 timeouts  5 idle
-- ARGV  1 publish command  2 when this is too late, in ms since 1970  3 what release has as its last
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the lock was taken, else 0. A key of another type or kind is an error and stays.
local lock, channel, queue, timeouts = unpack(KEYS)
local publish, last, counts = ARGV[1], tonumber(ARGV[2]), ARGV[3]
-- all_late.lua
-- fair_head.lua
-- fair_deaf.lua
-- fair_tell.lua
-- reentrant_holder.lua
if #holder == 0 then
    return 0
end
redis.call('del', lock)
tell()
return 1
