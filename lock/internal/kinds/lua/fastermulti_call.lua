-- Faster multi lock, call: what stands behind fastermulti_next.lua, at the line that names this file.

-- tellVisitors tells all who listen that values are free, if some know nothing of the line. Where nobody knows, all are told once a second.
-- tellVisitors returns whether some are known to listen.
local function tellVisitors(line, channel, publish, counted)
    local listening, now = visitors(channel, publish), serverTime()
    if listening <= 0 then
        local rank = redis.pcall('zrank', line, '*')
        if listening == 0 and counted == '1' or type(rank) == 'number' and now - scoreAt(line, rank) < blindVisit then
            return false
        end
        redis.pcall('zadd', line, arrival('*', now), '*')
    end
    redis.pcall(publish, channel, '0')
    return listening > 0
end

-- reserve gives a place a turn ("!") or a word ("~"), and tells its client. It returns the number of listeners, 0 if the place has gone for lack
-- of one, and nil if the user may not publish.
local function reserve(line, sign, place, channel, publish, counted, marks)
    local waiter, turn = waiterOf(place)
    local told = tellWaiter(publish, channel .. ':' .. waiter, '0', counted)
    if type(told) == 'table' then
        return nil
    elseif told == 0 and counted ~= '0' then
        redis.call('zrem', line, place, '~' .. place)
        return 0
    end
    redis.call('zrem', line, '~' .. place)
    mark(line, sign, place, turn or callFor, 1000 * now)
    table.insert(marks, {place = place, left = tonumber(turn or callFor), word = sign == '~'})
    marks.words = marks.words + (sign == '~' and 1 or 0)
    return 1
end

-- callForValues tells of values that may be free. In a line each place has a turn that wants one of them, and could have all that it wants;
-- the first that lacks one has a word until it asks. Without a line all are told.
local function callForValues(line, channel, publish, counted, values)
    if not line or redis.call('exists', line) == 0 or type(redis.pcall('zcount', line, '-inf', '(0')) == 'table' then -- no line, or the user has no right to it
        return redis.pcall(publish, channel, '0')
    elseif tellVisitors(line, channel, publish, counted) then
        return
    end
    sinceNow(line, 1000 * now)
    endDead(line, channel, publish, counted)
    local marks, open, before, held, seen = marksIn(line, ''), setOf(values), {}, {}, 1
    local at = redis.call('zcount', line, '-inf', '(0')
    local places = redis.call('zrange', line, at, at + mostSeen - 1)
    for i, place in ipairs(places) do
        if not next(open) or #marks - marks.words >= mostTogether then
            return
        elseif wants(place, open) then
            local could, heard = couldHave(place, marks, held), 1
            while not could and seen < i and not wants(place, before) do -- else it is not next
                before, seen = setOf(valuesOf(places[seen]), before), seen + 1
            end
            if could or isNext(line, place, marks, before) then
                heard = reserve(line, could and '!' or '~', place, channel, publish, counted, marks)
            end
            if not heard then
                return
            elseif heard == 0 then
                places[i] = '' -- it stands in front of nobody
            end
            for value in string.gmatch(could and valuesOf(places[i]) or '', '%S+') do
                open[value] = nil
            end
        end
    end
end
