-- Semaphore, undo: gives back the permits of an acquire whose outcome its caller does not know.
-- KEYS  1 semaphore  2 its channel  3 latch: how many permits the acquire took; keeps it, and this, from taking effect later
--       4 line, if there is one
-- ARGV  1 not used  2 not used  3 publish command  4 not used
--       5 when this is too late, in ms since 1970: no earlier than that of the acquire
--       and at the end what the server knows of listeners, and the client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when there was something to give back, else 0; running it again does no harm.
local semaphore, channel, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local publish, last = ARGV[3], tonumber(ARGV[5])

-- all_late.lua
-- all_line.lua
-- all_number.lua
local taken = redis.call('get', latch)
local left = redis.call('pttl', latch)
local life = math.max(taken == '0' and left or 1, last - now)
-- A write that needs no memory: a full server refuses none behind it.
redis.call('pexpire', latch, life)
redis.call('set', latch, 0, 'px', life)
if not taken or taken == '0' or not value then
    return 0
end
local total = redis.pcall('incrby', semaphore, taken)
if type(total) == 'table' then
    redis.call('set', latch, taken, 'px', math.max(life, left)) -- for the repeat of this undo
    redis.call('incrby', semaphore, taken) -- refused again: the error of the script
end
tellFree(line, channel, publish, ARGV[#ARGV - 1], ARGV[#ARGV], math.max(0, total), total, total - taken)
return 1
