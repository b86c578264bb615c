-- Faster multi lock, next: what stands behind fastermulti_line.lua, at the line that names this file: whom marks keep out.

-- reservedFrom returns the ms for which a value of a set is reserved for others than a place and its owner. Words count only if words is true.
local function reservedFrom(marks, set, place, owner, words)
    local left = 0
    for _, marked in ipairs(marks) do
        local keeps = not marked.word or words and marked.place ~= place and not delays(owner, marked.place)
        if keeps and wants(marked.place, set) then
            left = math.max(left, marked.left)
        end
    end
    return left
end

-- couldHave tells whether a place could have all its values now. It notes a held value in a set, held: others that want it need no further look.
local function couldHave(place, marks, held)
    local owner = ownerOf(place)
    if not owner and wants(place, held) then
        return false
    end
    for value in string.gmatch(valuesOf(place), '%S+') do
        local holder = holderOf(value)
        if holder and holder ~= owner then
            held[value] = true
            return false
        end
    end
    return not marks[1] or reservedFrom(marks, setOf(valuesOf(place)), place, owner, true) == 0
end

-- nextSince returns since when a place has been next for values, in ms: since now, if it has not been.
local function nextSince(line, place)
    local since = scoreAt(line, redis.call('zrank', line, place))
    if since > now then -- an arrival
        redis.call('zadd', line, now, place)
        return now
    end
    return since
end

-- keepsOthersOut tells whether who has been next for values since a time keeps others out now. They may have a value that nobody holds at first, for as
-- long as it then keeps them out: a place waits for the holder of another value, who may need long.
local function keepsOthersOut(since)
    return sharing(since, 1000 * now, keepsValues)
end

-- isNext tells whether a place that could not have its values is to have a word: it is in front of all who want one of them, has no turn or word, and
-- keeps others out. before has the values of all places in front.
local function isNext(line, place, marks, before)
    for _, marked in ipairs(marks) do
        if marked.place == place then
            return false
        end
    end
    if not string.find(valuesOf(place), ' ', 1, true) or wants(place, before) or marks.words >= mostTogether then
        return false
    end
    return keepsOthersOut(nextSince(line, place))
end
