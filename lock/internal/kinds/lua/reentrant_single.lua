-- Reentrant lock, single: gives back the hold of an owner that never has another one.
-- KEYS  1 lock  2 its channel
--       3 latch: the last owner to have given the lock back by a request with this latch, should the request be repeated
--       4 line, if there is one
-- ARGV  1 owner: the client's id, a colon and a number
--       and, only where they are not as usual: 2 publish command ('': nobody is told)  3 what the server knows of listeners
--       4 client's place in the line  5 what becomes of it: ended ("leave"), moved to the end ("move") or nothing ('')  6 1 for a repeat
-- Returns 1 when the lock is free now, 2 when moreover no other client waits as far as the server knows, 3 when nobody listens
--         either, 4 when clients listen that know nothing of the line; nil when the owner had no hold.
local lock, channel, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, publish, counted, place, stand = ARGV[1], ARGV[2] or 'PUBLISH', ARGV[3] or '1', ARGV[4], ARGV[5]
local lifetime = '20000' -- of the latch, in ms

if ARGV[6] == '1' and redis.call('get', latch) == owner then
    return 1
end
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
if redis.call('hdel', lock, owner) == 0 then
    return nil
end
local told
if stand ~= 'move' and redis.call('exists', line or lock) == 0 then -- nobody is in the line, nor will be
    told = publish ~= '' and redis.pcall(publish, channel, '0')
    if told == 0 or not line or type(told) ~= 'number' then
        redis.call('set', latch, owner, 'px', lifetime)
        return told == 0 and 3 or told == 1 and 2 or 1
    end
end
-- all_line.lua
giveWay(line, place, stand)
local waiting = tellFree(line, channel, publish, counted, string.match(owner, '^(.*):'), '0', 1, nil, told)
redis.call('set', latch, owner, 'px', lifetime)
return waiting
