-- All kinds, quit: ends the place of a client in the line of a lock, behind all_line.lua. If the lock is free, who is next is told.
-- KEYS  1 lock  2 its channel  3 line
-- ARGV  1 publish command ('': nobody is told)  2 what the server knows of listeners  3 client's id  4 its place
-- Returns 1 if somebody else was told, else 0; running it again does no harm.
local lock, channel, line = KEYS[1], KEYS[2], KEYS[3]
local publish, counted, id, place = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if not line or redis.pcall('zrem', line, place, '!' .. place) ~= 1 or redis.call('exists', lock) == 1 then
    return 0
end
local time, head = redis.call('time'), redis.call('zrange', line, 0, 0, 'withscores')
if -tonumber(head[2] or 0) > time[1] * 1000 + math.floor(time[2] / 1000) then
    tellWatcher(line, channel, publish, counted) -- the place may have been the one that watched over this turn
else
    tellFree(line, channel, publish, counted, id)
end
return 1
