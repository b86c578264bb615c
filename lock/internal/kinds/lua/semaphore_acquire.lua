-- Semaphore, acquire: takes permits if there are as many.
-- KEYS  1 semaphore: a string, the number of free permits  2 its channel
--       3 latch: how many permits this very request took, 0 once it has been undone  4 line, if there is one
-- ARGV  1 time in ms within which an undo may come  2 not used  3 permits  4 1 to wait for a semaphore to be set up
--       5 when this is too late, in ms since 1970
--       6 place in the line  7 what becomes of it: '' nothing; taken when refused ("join"); and when granted ended ("leave")
--       or moved to the end ("move")  8 what the server knows of listeners  9 publish command
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         nil when they are taken, the status unset when there is no semaphore,
--         and otherwise when to ask again in ms: at the end of the others' turns (-1: unknown).
local semaphore, channel, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local within, permits, waits, last = tonumber(ARGV[1]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local place, stand, counted, publish = ARGV[6] or '', ARGV[7] or '', ARGV[8], ARGV[9]

-- all_late.lua
local known = redis.call('exists', latch, line or latch) > 0 -- one question in place of two
local taken = known and redis.call('get', latch)
if taken == '0' then
    return -1 -- late, and nobody waits for this any more
elseif taken then
    -- A WAIT behind a repeat counts who has the first request only if this writes, too. A latch that is to go soon has been settled.
    local left = redis.call('pttl', latch)
    redis.call('pexpire', latch, left > within / 5 and 2 * within or math.max(1, left))
    return nil
end
-- all_number.lua
if not value and waits ~= '1' then
    return redis.status_reply('unset')
end
local free = tonumber(value or 0)
local function take()
    redis.call('set', latch, permits, 'px', 2 * within) -- first, so that a user who may not set it takes nothing
    if type(redis.pcall('decrby', semaphore, permits)) == 'table' then
        redis.call('set', latch, 0, 'px', 1) -- or else an undo would give back what was not taken
        redis.call('decrby', semaphore, permits) -- refused again: the error of the script
    end
end
if not known and stand ~= 'move' and free >= permits then
    take()
    return nil
end
-- all_line.lua
local left, turns = nil, nil
if known then
    left, turns = reservedFor(line, place, now, free - permits, free)
end
if free < permits or left then
    return refusePermits(line, channel, publish, counted, place, stand, permits, free >= permits and left or -1, turns, free)
end
take()
giveWay(line, place, stand)
if known then
    passOn(line, channel, publish, counted, free - permits)
end
return nil
