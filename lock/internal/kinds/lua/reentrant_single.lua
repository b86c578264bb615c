-- Reentrant lock, single: gives back the hold of an owner that never has another one.
-- KEYS  1 lock  2 its channel
--       3 latch: the last owner to have given the lock back by a request with this latch, should the request be repeated
--       4 line, if there is one
-- ARGV  1 lease in ms, which is not used: no hold remains  2 owner  3 publish command ('': nobody is told)
--       4 lifetime of the latch in ms  5 1 for a repeat
--       6 what the server knows of listeners  7 client's id  8 its place in the line
--       9 what becomes of it: ended ("leave"), moved to the end ("move") or nothing ('')
-- Returns 1 when the lock is free now, 2 when moreover no other client waits as far as the server knows, 3 when nobody listens
--         either; nil when the owner had no hold.
local lock, channel, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, publish, lifetime, repeated = ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if repeated == '1' and redis.call('get', latch) == owner then
    return 1
end
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
if redis.call('hdel', lock, owner) == 0 then
    return nil
end
local told
if ARGV[9] ~= 'move' and redis.call('exists', line or lock) == 0 then -- nobody is in the line, nor will be
    told = publish ~= '' and redis.pcall(publish, channel, '0')
    if not line or type(told) ~= 'number' or told == 0 then
        redis.call('set', latch, owner, 'px', lifetime)
        return type(told) == 'number' and told < 2 and 3 - told or 1
    end
end
-- all_line.lua
giveWay(line, ARGV[8], ARGV[9])
local alone = tellFree(line, channel, publish, ARGV[6], ARGV[7], '0', 1, nil, told)
redis.call('set', latch, owner, 'px', lifetime)
return alone and 3 - alone or 1
