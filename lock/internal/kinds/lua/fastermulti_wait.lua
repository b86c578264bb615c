-- Faster multi lock, wait: what stands behind fastermulti_line.lua in the acquire, at the line that names this file.

-- endOwn ends the marks of the client that asks from a place, and its other places if it waits.
local function endOwn(line, place, stand, marks)
    for _, marked in ipairs(marks.own) do
        local whose = string.sub(marked, 2)
        redis.call('zrem', line, marked, stand ~= '' and whose ~= place and whose or marked)
    end
end

-- inFrontOf returns how many places in front of a place want one of its values.
local function inFrontOf(line, place)
    local set, ahead = setOf(valuesOf(place)), 0
    local at, own = redis.call('zcount', line, '-inf', '(0'), redis.call('zrank', line, place)
    for _, other in ipairs(own > at and redis.call('zrange', line, at, math.min(own - 1, at + mostSeen)) or {}) do
        if wants(other, set) then
            ahead = ahead + 1
            if ahead == mostAhead then
                return ahead
            end
        end
    end
    return ahead
end

-- waitForValues gives a refused client a place, unless it has one, and returns the ms until it should ask again uncalled. left is how long
-- others have a value.
local function waitForValues(line, place, stand, left, marks)
    if stand == '' then
        return left
    elseif not line or type(redis.pcall('zadd', line, 'nx', arrival(place, serverTime()), place)) == 'table' then
        return math.min(left, permitLook) -- a server that is out of memory has no place, and a release calls the others
    end
    endOwn(line, place, stand, marks)
    redis.call('pexpire', line, lineLife)
    local ahead = inFrontOf(line, place)
    if ahead > 0 or not string.find(valuesOf(place), ' ', 1, true) then
        return math.min(left, permitLook) + ahead * callFor
    end
    local since = nextSince(line, place)
    if not keepsOthersOut(since) then
        return math.min(left, nextLook)
    end
    local passed, phase = phaseAt(since, 1000 * now, keepsValues)
    local rest = math.max(1, phase - passed % phase)
    if marks.words < mostTogether then
        local _, turn = waiterOf(place)
        mark(line, '~', place, math.min(nextFor, rest + tonumber(turn or callFor)), serverTime())
    end
    return math.min(left, nextLook, rest)
end
