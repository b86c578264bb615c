-- All kinds, line: what stands in front of the scripts of a lock for which processes wait in a line. Each has its turn.
-- The line is a sorted set. A process has a place in it, "<client's id>:<number>:<ms of its turn>", with the server's time of its
-- arrival in µs.
-- All clients that know nothing of the line have one place together, "*", as long as any of them listens to the lock's channel.
-- Who is called has a turn: the member "!<place>" at the head, whose score is the end of the turn, in ms and below zero. A turn
-- reserves the lock, or one permit. It ends when its client asks; a client that does not ask in time loses its place.
local callFor = 100 -- ms of a turn, unless its place says more
local visitFor, longVisitFor = 10, 50 -- ms of a turn of the clients that know nothing of the line: one in four is long, for slow ones
local turnLimit = 10000 -- ms: a turn that ends later is from before the server's clock was set back
local mostTurns = 8 -- at once
local blindVisit = 1000000 -- µs between visits where it is unknown whether any of them waits
local permitVisit = 50000 -- µs between visits for permits: they may wait for more than are free, and nothing bounds them otherwise
local permitLook = 1000 -- ms to the next look of one who waits for permits, uncalled: those in front may all be hung
local lineLife = 25000 -- ms: each process asks more often as long as it waits

local function serverTime()
    local time = redis.call('time')
    return time[1] * 1000000 + time[2]
end

-- turnsIn returns which places have a turn, how many, and how long the first turn lasts, in ms; and whether the client of this place
-- had one, which has ended. list is the beginning of the line. Turns that are over end, with their places: also that of the clients
-- that know nothing of the line, if less is free than all turns are for.
local function turnsIn(line, list, place, now, free)
    local own, called, count, first, came = '!' .. string.match(place, '^[^:]*'), {}, 0, nil, false
    for i = 1, #list, 2 do
        local mark, left = list[i], -tonumber(list[i + 1]) - now
        local whose = string.sub(mark, 2)
        if tonumber(list[i + 1]) >= 0 then
            break
        elseif own ~= '!' and string.sub(mark, 1, #own) == own then
            redis.call('zrem', line, mark, (whose ~= place or whose == '*') and whose or mark)
            came = true
        elseif left <= 0 or left > turnLimit then
            redis.call('zrem', line, mark, whose)
        else
            called[whose], count = left, count + 1
        end
    end
    if called['*'] and count > free then
        redis.call('zrem', line, '!*', '*')
        called['*'], count = nil, count - 1
    end
    for _, left in pairs(called) do
        first = math.min(first or left, left)
    end
    return called, count, first, came
end

-- reservedFor returns for how long in ms too much is reserved for others, and nil if it is not: so much is spare beside what is asked
-- for. It also returns how many others have a turn, and whether the asking client had one, which ends.
local function reservedFor(line, place, now, spare, free)
    if not line or place == '' then
        return nil, 0, false
    end
    local list = redis.pcall('zrange', line, 0, mostTurns - 1, 'withscores')
    local _, turns, first, came = turnsIn(line, list, place, now, free)
    return turns > spare and (first or -1) or nil, turns, came
end

-- waitInLine gives a refused client a place unless it has one, and returns when it should ask again without having been called: after
-- left, and after those in front of it had the time to; left is no more than most, if there is one.
local function waitInLine(line, place, stand, left, most)
    if not line or stand == '' then
        return left
    end
    local added = redis.pcall('zadd', line, 'nx', string.format('%.0f', serverTime()), place)
    if type(added) == 'table' then
        return left -- a server that is out of memory has no place
    end
    if added == 0 then
        redis.call('zrem', line, '!' .. place)
    end
    redis.call('pexpire', line, lineLife)
    if most and (left < 0 or left > most) then
        left = most
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
        redis.pcall('zrem', line, place, '!' .. place)
    elseif line and stand == 'move' then
        redis.pcall('zadd', line, string.format('%.0f', serverTime()), place)
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
        local turn = tonumber(string.match(place, '^[^:]*:%d+:(%d+)$')) or callFor
        return redis.pcall(publish, channel .. ':' .. string.match(place, '^[^:]*'), message), turn
    end
    local turn = math.floor(now / 1000) % 4 == 0 and longVisitFor or visitFor
    return (others ~= 0 or counted ~= '1') and redis.pcall(publish, channel, message) or 0, turn
end

-- visit gives the clients that know nothing of the line a place, if there may be any.
local function visit(line, others, counted, now, pause)
    if others > 0 then
        redis.pcall('zadd', line, 'nx', string.format('%.0f', now + pause), '*')
    elseif counted ~= '1' or others < 0 then -- they may listen at another server
        redis.pcall('zadd', line, 'nx', string.format('%.0f', now + blindVisit), '*')
    end
end

-- callNext gives a turn to the first in front, or behind a place, unless all that is available is reserved: who has it calls the next.
-- before is how many permits were available before this script, nil for a lock. The one behind is told to watch over the turns, and asks
-- when they end. It returns false if nobody is in the line; otherwise true, and
-- whether no other client than the one with this id is known to wait.
local function callNext(line, channel, publish, counted, id, message, available, before, behind)
    local list = redis.pcall('zrange', line, 0, mostTurns - 1, 'withscores')
    if not list[1] then
        return false
    end
    local now, others = serverTime(), strangers(channel, publish)
    local called, turns = turnsIn(line, list, '', math.floor(now / 1000), before or 0)
    local at = behind and redis.call('zrank', line, behind)
    at = at and at + 1 or turns
    local places, watchers, alone = redis.call('zrange', line, at, at + mostTurns), 0, others == 0 and turns == 0
    local calls = turns < available and turns < mostTurns
    if turns == 0 and not behind and (not places[1] or places[1] == '*' and not places[2]) then
        redis.call('zrem', line, '*')
        return false -- nobody of the line waits: the others need no turn
    elseif places[1] and places[1] ~= '*' then
        -- not before a place that has just moved to the end: Valkey's clock stands still during a script
        visit(line, others, counted, now, before and permitVisit or 1)
    end
    while places[1] do
        for _, place in ipairs(places) do
            if called[place] or place == '*' and not calls then
                at = at + 1
            else
                local told, turn = call(place, channel, publish, message, others, counted, now)
                if type(told) == 'table' then
                    return true -- the user may not publish: waiters look by themselves
                elseif told == 0 and counted ~= '0' then
                    redis.call('zrem', line, place)
                elseif calls then
                    redis.pcall('zadd', line, string.format('%.0f', -turn - math.floor(now / 1000)), '!' .. place)
                    redis.call('pexpire', line, lineLife)
                    at, turns, calls, alone = at + 2, turns + 1, false, alone and string.sub(place, 1, #id) == id
                else
                    at, watchers = at + 1, watchers + 1
                    if counted ~= '0' or watchers == 3 then -- more where nobody knows who listens
                        return true
                    end
                end
            end
        end
        places = redis.call('zrange', line, at, at + mostTurns)
    end
    return turns > 0 or behind ~= nil, alone and turns == 1 and watchers == 0
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
