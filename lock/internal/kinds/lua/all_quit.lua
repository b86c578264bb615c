-- All kinds, quit: ends the place of a client in the line of a lock. If the lock is free, or has readers only, who is next is told.
-- KEYS  1 lock  2 its channel  3 line
-- ARGV  1 publish command ('': nobody is told)  2 what the server knows of listeners  3 client's id  4 its place
--       5 1 for a lock that is a number of permits
-- Returns 1 if somebody else was told, else 0; running it again does no harm.
local lock, channel, line = KEYS[1], KEYS[2], KEYS[3]
local publish, counted, id, place, counts = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local ended = line and redis.pcall('zrem', line, place, '!' .. place, '~' .. place)
if not line or type(ended) == 'table' or ended == 0 then
    return 0
end
-- all_line.lua
local free = counts == '1' and (tonumber(redis.pcall('get', lock) or 0) or 0) or availableOf(lock)
if free <= 0 or redis.call('exists', line) == 0 then
    return 0
end
tellFree(line, channel, publish, counted, id, counts == '1' and string.format('%.0f', free) or '0', free, free)
return 1
