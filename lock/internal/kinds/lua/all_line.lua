-- All kinds, line: what stands in front of the scripts of a lock for which processes wait in a line. Each has its turn.
-- The line is a sorted set. A process has a place in it, "<waiter>:<number>:<ms of its turn>", with the server's time of its
-- arrival in µs. The waiter is the client's id; behind the id stands ":r" for the readers of the client, and ":w" for its writers if
-- they go in front of all readers.
-- All clients that know nothing of the line have one place together, "*", as long as any of them listens to the lock's channel.
-- Who is called has a turn: the member "!<place>" at the head, whose score is the end of the turn, in ms and below zero. A turn
-- reserves the lock, one permit, or a share of the lock for a reader. It ends when its client asks; a client that does not ask in time
-- loses its place. The turn of a reader lasts for those who wait with it.
-- While readers have the lock, the writer at the head is next: by the member "~<place>" it reserves the lock for a while, and again
-- whenever it asks.
local callFor = 100 -- ms of a turn, unless its place says more
local visitFor, longVisitFor = 10, 50 -- ms of a turn of the clients that know nothing of the line: one in four is long, for slow ones
local turnLimit = 10000 -- ms: a turn that ends later is from before the server's clock was set back
local mostTurns = 8 -- at once
local blindVisit = 1000000 -- µs between visits where it is unknown whether any of them waits
local permitVisit = 50000 -- µs between visits for permits: they may wait for more than are free, and nothing bounds them otherwise
local permitLook = 1000 -- ms to the next look of one who waits for permits, uncalled: those in front may all be hung
local lineLife = 25000 -- ms: each process asks more often as long as it waits
local share = 1 / 64 -- of a lock: so much have all its readers together, and so much reserves the turn of a reader
local nextFor, nextLook = 1000, 500 -- ms for which the writer that is next keeps readers out, and within which it asks again
local inFront = 1000000000000 -- µs by which the place of a writer that goes first is older

local function serverTime()
    local time = redis.call('time')
    return time[1] * 1000000 + time[2]
end

-- waiterOf returns the waiter in a place, and the ms of its turn, if the place says both.
local function waiterOf(place)
    local waiter, turn = string.match(place, '^(.-):%d+:(%d+)$')
    return waiter or string.match(place, '^[^:]*'), turn
end

-- needOf returns how much a turn of this place reserves.
local function needOf(place)
    return string.find(place, ':r:', 1, true) and share or 1
end

-- arrival returns the score of a place taken now.
local function arrival(place, now)
    return string.format('%.0f', string.find(place, ':w:', 1, true) and now - inFront or now)
end

-- turnsIn returns the turns in the line: whose they are, how many, how much they reserve, and how long the first lasts, in ms; and came:
-- whether the waiter of this place had one, which has ended, or is that of a reader. list is the beginning of the line. Turns that are
-- over end, with their places: also that of the clients that know nothing of the line, if less is free than all turns are for. Who was
-- next ("~") has no turn any more if all is free anew.
local function turnsIn(line, list, place, now, free, anew)
    local own, turns = waiterOf(place), {of = {}, count = 0, reserved = 0, came = false}
    for i = 1, #list, 2 do
        local mark, left = list[i], -tonumber(list[i + 1]) - now
        local whose = string.sub(mark, 2)
        local lasts = left > 0 and left <= turnLimit
        if tonumber(list[i + 1]) >= 0 then
            break
        elseif own ~= '' and waiterOf(whose) == own and not (lasts and needOf(whose) < 1) then
            redis.call('zrem', line, mark, (whose ~= place or whose == '*') and whose or mark)
            turns.came = needOf(whose) == 1
        elseif own ~= '' and waiterOf(whose) == own then
            turns.came = true
        elseif not lasts then
            redis.call('zrem', line, mark, whose)
        elseif anew and string.sub(mark, 1, 1) == '~' then
            redis.call('zrem', line, mark)
        else
            turns.of[whose], turns.count, turns.reserved = left, turns.count + 1, turns.reserved + needOf(whose)
        end
    end
    if turns.of['*'] and turns.reserved > free then
        redis.call('zrem', line, '!*', '*')
        turns.of['*'], turns.count, turns.reserved = nil, turns.count - 1, turns.reserved - 1
    end
    for _, left in pairs(turns.of) do
        turns.first = math.min(turns.first or left, left)
    end
    return turns
end

-- reservedFor returns for how long in ms too much is reserved for others, and nil if it is not: so much is spare beside what is asked
-- for. It also returns the turns of others.
local function reservedFor(line, place, now, spare, free)
    if not line or place == '' then
        return nil, {of = {}, count = 0, reserved = 0, came = false}
    end
    local list = redis.pcall('zrange', line, 0, mostTurns, 'withscores')
    local turns = turnsIn(line, list, place, now, free)
    turns.waits = list[1]
    return turns.reserved > spare and (turns.first or -1) or nil, turns
end

-- becomeNext makes the place that of the writer which is next, if in front of it stand only readers with a turn, and clients that know
-- nothing of the line. It returns when the writer should ask again.
local function becomeNext(line, place, turns)
    local marks = redis.call('zcount', line, '-inf', '(0')
    for _, other in ipairs(redis.call('zrange', line, marks, marks + mostTurns + 1)) do
        if other == place then
            break
        elseif other ~= '*' and not (turns.of[other] and needOf(other) < 1) then
            return nil
        end
    end
    redis.call('zadd', line, string.format('%.0f', -nextFor - math.floor(serverTime() / 1000)), '~' .. place)
    return nextLook
end

-- waitInLine gives a refused client a place unless it has one, and returns when it should ask again without having been called: after
-- left, and after those in front of it had the time to; left is no more than most, if there is one. beside has the turns of others for a
-- writer refused because of readers.
local function waitInLine(line, place, stand, left, most, beside)
    if not line or stand == '' then
        return left
    end
    local added = redis.pcall('zadd', line, 'nx', arrival(place, serverTime()), place)
    if type(added) == 'table' then
        return left -- a server that is out of memory has no place
    end
    if added == 0 then
        redis.call('zrem', line, '!' .. place, '~' .. place)
    end
    redis.call('pexpire', line, lineLife)
    local bound = most
    if beside then
        bound = becomeNext(line, place, beside)
    end
    if bound and (left < 0 or left > bound) then
        left = bound
    end
    if left < 0 then
        return left
    end
    local ahead = redis.call('zrank', line, place) - 2 * redis.call('zcount', line, '-inf', '(0') -- without the turns and their places
    return left + math.max(0, ahead) * callFor
end

-- giveWay ends a place ("leave"), or moves it to the end of the line for others of the same process ("move").
local function giveWay(line, place, stand)
    if line and stand == 'leave' then
        redis.pcall('zrem', line, place, '!' .. place, '~' .. place)
    elseif line and stand == 'move' then
        redis.pcall('zadd', line, arrival(place, serverTime()), place)
        redis.call('pexpire', line, lineLife)
    end
end

-- strangers returns how many listen to the lock's channel and know nothing of the line, as far as this server knows; -1 if the user
-- may not ask.
local function strangers(channel, publish)
    local numsub = publish == 'SPUBLISH' and 'shardnumsub' or 'numsub'
    local counts = redis.pcall('pubsub', numsub, channel, channel .. ':lockwire')
    return counts.err and -1 or counts[2] - counts[4]
end

-- What a server knows of the listeners to a lock's channels, counted: 0 only some of them, 1 all, 2 all that know the line.

-- call tells the client of a place, or by a message all clients that know nothing of the line. It returns the number of listeners, or
-- an error as a table, and for how long the place has its turn.
local function call(place, channel, publish, message, others, counted, now)
    if place ~= '*' then
        local waiter, turn = waiterOf(place)
        return redis.pcall(publish, channel .. ':' .. waiter, message), turn or callFor
    end
    local turn = math.floor(now / 1000) % 4 == 0 and longVisitFor or visitFor
    return (others ~= 0 or counted ~= '1') and redis.pcall(publish, channel, message) or 0, turn
end

-- visit gives the clients that know nothing of the line a place, if there may be any. first is the place at the head.
local function visit(line, first, others, counted, now, pause)
    if others > 0 then
        redis.pcall('zadd', line, 'nx', arrival(first, now + pause), '*')
    elseif counted ~= '1' or others < 0 then -- they may listen at another server
        redis.pcall('zadd', line, 'nx', arrival(first, now + blindVisit), '*')
    end
end

-- markFor returns how the turn of a place begins, "!" or "~", if beside other turns there is enough for it, and nil otherwise. available
-- is less than the whole lock if readers have it.
local function markFor(place, turns, available)
    local need = needOf(place)
    if turns.count >= mostTurns then
        return nil
    elseif turns.reserved + need <= available then
        return '!'
    end
    return available > 0 and available < 1 and need == 1 and turns.reserved < 1 and place ~= '*' and '~' or nil
end

-- callNext gives a turn to the first in front, or behind a place, unless too much of what is available is reserved: who has it calls the
-- next. before is how many permits were available before this script, nil for a lock. The one behind is told to watch over the turns, and
-- asks when they end. It returns false if nobody is in the line; otherwise true, and
-- whether no other client than the one with this id is known to wait.
local function callNext(line, channel, publish, counted, id, message, available, before, behind)
    local list = redis.pcall('zrange', line, 0, mostTurns, 'withscores')
    if not list[1] then
        return false
    end
    local now, others = serverTime(), strangers(channel, publish)
    local turns = turnsIn(line, list, '', math.floor(now / 1000), before or 0, available == 1 and not before)
    local at = behind and redis.call('zrank', line, behind)
    at = at and at + 1 or turns.count
    local places, watchers, alone = redis.call('zrange', line, at, at + mostTurns), 0, others == 0 and turns.count == 0
    local calls = true
    if turns.count == 0 and not behind and (not places[1] or places[1] == '*' and not places[2]) then
        redis.call('zrem', line, '*')
        return false -- nobody of the line waits: the others need no turn
    elseif places[1] and places[1] ~= '*' then
        -- not before a place that has just moved to the end: Valkey's clock stands still during a script
        visit(line, places[1], others, counted, now, before and permitVisit or 1)
    end
    while places[1] do
        for _, place in ipairs(places) do
            local mark = calls and markFor(place, turns, available)
            if turns.of[place] or place == '*' and not mark then
                at = at + 1
            else
                local told, turn = call(place, channel, publish, message, others, counted, now)
                if type(told) == 'table' then
                    return true -- the user may not publish: waiters look by themselves
                elseif told == 0 and counted ~= '0' then
                    redis.call('zrem', line, place)
                elseif mark then
                    turn = mark == '~' and nextFor or turn
                    redis.pcall('zadd', line, string.format('%.0f', -turn - math.floor(now / 1000)), mark .. place)
                    redis.call('pexpire', line, lineLife)
                    at, turns.count, calls, alone = at + 2, turns.count + 1, false, alone and string.sub(place, 1, #id) == id
                else
                    at, watchers, calls = at + 1, watchers + 1, false -- nobody behind goes before one for whom there is not enough
                    if counted ~= '0' or watchers == 3 then -- more where nobody knows who listens
                        return true
                    end
                end
            end
        end
        places = redis.call('zrange', line, at, at + mostTurns)
    end
    return turns.count > 0 or behind ~= nil, alone and turns.count == 1 and watchers == 0
end

-- tellFree tells the next in the line that so much is available; without a line it tells all, by a message. It returns how many
-- listen, 0 or 1, if no other client than the one with this id is known to wait; otherwise false.
local function tellFree(line, channel, publish, counted, id, message, available, before)
    if publish == '' then
        return false
    end
    local lined, alone = false, false
    if line then
        lined, alone = callNext(line, channel, publish, counted, id, message, available, before)
    end
    if lined and available > 0 and available < 1 and strangers(channel, publish) > 0 then
        redis.pcall(publish, channel, message) -- readers without a line may come in, beside the others
    end
    if lined then
        return alone and 1
    end
    local told = redis.pcall(publish, channel, message)
    return type(told) == 'number' and told < 2 and told
end

-- passOn tells the next in the line of what is left.
local function passOn(line, channel, publish, counted, available)
    if available > 0 and redis.call('exists', line) == 1 then
        tellFree(line, channel, publish, counted, '', available, available, available)
    end
end

-- admitReader follows the grant to a reader: others of its process who wait come in too, by its turn, and the next in the line is called.
-- first is true for the first of all readers.
local function admitReader(line, place, stand, turns, first, channel, publish, counted)
    giveWay(line, place, stand)
    if not turns.waits or turns.reserved >= 1 then
        return -- nobody waits, or a writer is next
    end
    if stand == 'move' and not turns.came and turns.count < mostTurns then
        local _, turn = waiterOf(place)
        redis.call('zadd', line, string.format('%.0f', -(turn or callFor) - math.floor(serverTime() / 1000)), '!' .. place)
    end
    if first then
        tellFree(line, channel, publish, counted, '', '1', 1 - share) -- 1: all readers of Redisson's processes may come in
    else
        callNext(line, channel, publish, counted, '', '1', 1 - share)
    end
end

-- availableOf returns how much of a lock is available: also of one that has readers.
local function availableOf(lock)
    return redis.pcall('hget', lock, 'mode') == 'read' and 1 - share or 1 - redis.call('exists', lock)
end

-- lineIn returns the line of a read-write lock, the last of its keys, if it is there.
local function lineIn(keys, lock)
    local line = 'lockwire_line:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}')
    return keys[#keys] == line and line
end
