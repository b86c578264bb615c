-- Permit semaphore, acquire: takes as many permits as there are ids, if so many are free.
-- KEYS  1 semaphore: a string, the number of free permits  2 its channel
--       3 permits that are taken: a sorted set of their ids, 16 bytes each, by the end of their leases in ms since 1970
--       4 latch: there once this very request has been undone  5 line, if there is one
-- ARGV  1 lease in ms  2 ids, one behind the other  3 publish command
--       4 1 to wait for a semaphore to be set up  5 1 for permits whose lease never ends
--       6 when this is too late, in ms since 1970
--       7 place in the line  8 what becomes of it: '' nothing; taken when refused ("join"); and when granted ended ("leave")
--       or moved to the end ("move")  9 what the server knows of listeners
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         nil when they are taken, the status unset when there is no semaphore, and otherwise when to ask again in ms:
--         at the end of the next lease, or of the others' turns (-1: unknown).
local semaphore, channel, permits, latch, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lease, ids, publish, waits, forever, last = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local place, stand, counted = ARGV[7] or '', ARGV[8] or '', ARGV[9]
local never = '922337203685477' -- as Redisson has it

-- all_late.lua
local known = redis.call('exists', latch, line or latch) > 0 -- one question in place of two
if known and redis.call('exists', latch) == 1 then
    return -1 -- undone: nobody waits for this any more
end
if redis.call('zscore', permits, string.sub(ids, 1, 16)) then
    return nil -- a repeat
end
-- all_number.lua
local free, ended = value, redis.call('zremrangebyscore', permits, '-inf', now)
if ended > 0 then
    free = redis.pcall('incrby', semaphore, ended)
    if type(free) == 'table' then
        for i = 1, ended do redis.call('zadd', permits, now, string.sub(ids, 1, 16) .. i) end -- for the next acquire to count
        redis.call('incrby', semaphore, ended) -- refused again: the error of the script
    end
    if free > 0 then redis.pcall(publish, channel, free) end -- a user who may not publish leaves waiters to look by themselves
end
if not free and waits ~= '1' then
    return redis.status_reply('unset')
end
local count, there, left, turns = #ids / 16, free, nil, nil
free = tonumber(free or 0)
local function take()
    redis.call('decrby', semaphore, count)
    for i = 1, #ids, 16 do
        local ends, id = forever == '1' and never or now + lease, string.sub(ids, i, i + 15)
        if type(redis.pcall('zadd', permits, ends, id)) == 'table' then
            redis.call('decrby', semaphore, -count) -- nobody has them, and no lease would give them back; this right is there
            redis.call('zadd', permits, ends, id) -- refused again: the error of the script
        end
    end
    local ends = redis.call('pttl', semaphore)
    if ends > 0 then
        redis.call('pexpire', permits, ends)
    end
end
if not known and stand ~= 'move' and free >= count then
    take()
    return nil
end
-- all_line.lua
if known then
    left, turns = reservedFor(line, place, now, free - count, free)
end
if free < count or left then
    if free < count then
        local first = there and redis.call('zrange', permits, 0, 0, 'withscores') or {}
        left = first[2] and tonumber(first[2]) < tonumber(never) and tonumber(first[2]) - now or -1
    end
    return refusePermits(line, channel, publish, counted, place, stand, count, left, turns, free)
end
take()
giveWay(line, place, stand)
if known then
    passOn(line, channel, publish, counted, free - count)
end
return nil
