-- Faster multi lock, acquire: takes the values of a group for an owner who finds each of them free or has it already.
-- KEYS  1 group: a hash with three fields for each value that is taken: the value to its owner; and behind the value and the owner
--       the end of the lease in ms since 1970, and the hold count
--       2 latch: there once this very request has been undone  3 line, if there is one
-- ARGV  1 lease in ms  2 owner and values, with spaces between them  3 when this is too late, in ms since 1970
--       4 place in the line  5 what becomes of it, as for a Reentrant lock
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise nil when all values are first
--         holds, those that are first holds as a status with spaces between them when the owner had others already,
--         and otherwise when to ask again in ms: at the end of the longest lease or turn of others.
local group, latch, line = KEYS[1], KEYS[2], KEYS[3]
local lease, last = tonumber(ARGV[1]), tonumber(ARGV[3])
local place, stand = ARGV[4] or '', ARGV[5] or ARGV[4] and 'join' or ''
local owner, values = string.match(ARGV[2], '^(%S+) (.*)$')

-- all_late.lua
local known = redis.call('exists', group, latch, line or latch) > 0 -- one question in place of many: otherwise nobody has a value, or waits
if known and redis.call('exists', latch) == 1 then
    return -1 -- undone: nobody waits for this any more
end
if known and (redis.call('hlen', group) == 1 or redis.call('hexists', group, 'mode') == 1) then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
local left, mine = 0, true -- whether the owner has all values already
for value in string.gmatch(values, '%S+') do
    local holder = known and redis.call('hget', group, value)
    local ends = holder and tonumber(redis.call('hget', group, value .. ':' .. holder .. ':expire_time') or 0) or 0
    mine = mine and holder == owner and ends > now
    left = math.max(left, holder ~= owner and ends - now or 0)
end

local function take()
    local first, further = {}, false
    for value in string.gmatch(values, '%S+') do
        local holder, hold, count = known and redis.call('hget', group, value), value .. ':' .. owner, 1
        local ends = holder and tonumber(redis.call('hget', group, value .. ':' .. holder .. ':expire_time') or 0) or 0
        if ends > now then -- a further hold never shortens the lease of those it is nested in
            further = true
            count = (redis.call('hget', group, hold .. ':lock_count') or 0) + 1
        end
        if count == 1 then
            table.insert(first, value)
        end
        redis.call('hset', group, value, owner, hold .. ':expire_time', string.format('%.0f', math.max(ends, now + lease)), hold .. ':lock_count', count)
        if holder and holder ~= owner then -- its lease has ended
            redis.call('hdel', group, value .. ':' .. holder .. ':expire_time', value .. ':' .. holder .. ':lock_count')
        end
    end
    if not known or redis.call('pttl', group) < lease then
        redis.call('pexpire', group, lease)
    end
    return further and redis.status_reply(table.concat(first, ' ')) or nil
end

if stand ~= 'move' and left == 0 and (not known or not line or redis.call('exists', line) == 0) then
    return take()
end
-- all_line.lua
-- fastermulti_line.lua
-- fastermulti_next.lua
-- fastermulti_wait.lua
local marks = place ~= '' and line and marksIn(line, place)
if left == 0 and marks and not mine then
    left = reservedFrom(marks, setOf(values), place, owner, stand ~= '' and not marks.came)
end
if left > 0 then
    return waitForValues(line, place, stand, left, marks)
end
local holds = take()
if marks then
    endOwn(line, place, stand, marks)
end
giveWay(line, place, stand)
return holds
