-- All kinds, quit: ends the place of a client in the line of a lock. If the lock is free, or has readers only, who is next is told.
-- KEYS  1 lock  2 its channel  3 line
-- ARGV  1 publish command ('': nobody is told)  2 what the server knows of listeners  3 client's id  4 its place
--       5 1 for a lock that is a number of permits
-- Returns 1 if somebody else was told, else 0; running it again does no harm.
local lock, channel, line = KEYS[1], KEYS[2], KEYS[3]
local publish, counted, id, place, counts = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local front = line and redis.pcall('zrange', line, 0, 8)
local ended = line and redis.pcall('zrem', line, place, '!' .. place, '~' .. place, '=' .. place)
if not line or type(ended) == 'table' or ended == 0 then
    return 0
end
-- all_line.lua
local uncalled = 10000 -- ms after which all ask again uncalled

-- tellOfLease follows the end of a place while the lock is taken: if it was the first, the process behind is told to ask. A release tells only
-- the first two, so those behind count on the lease of an earlier holder, which may be longer.
local function tellOfLease()
    local left, first = tonumber(redis.pcall('pttl', lock)) or -1, nil
    if publish == '' or left < 0 or left > uncalled then
        return 0
    end
    for _, other in ipairs(front) do
        if string.find(other, '^[^!~*=]') then
            first = first or other
            if first ~= place then
                return 0
            elseif other ~= place and (tellWaiter(publish, channel .. ':' .. waiterOf(other), '2', counted) ~= 0 or counted == '0') then
                return 1
            end
        end
    end
    return 0
end

local free = counts == '1' and (tonumber(redis.pcall('get', lock) or 0) or 0) or availableOf(lock)
if counts ~= '1' and free <= 0 then
    return tellOfLease()
elseif free <= 0 or redis.call('exists', line) == 0 then
    return 0
end
tellFree(line, channel, publish, counted, id, counts == '1' and string.format('%.0f', free) or '0', free, free)
return 1
