-- All kinds, line: what stands in the scripts of a lock for which processes wait in a line. Each has its turn.
-- The line is a sorted set. It lives for lineLife after the last refusal. Its members, from the head:
--
--   member    score                     added                                     removed
--   !<place>  -(end of its turn in ms)  when the place is called (callNext)       when its client asks; when it ends, with its place
--   ~<place>  -(end of its word in ms)  when the place is next                    as !<place>, and when the lock is free
--   <place>   arrival in µs             when an acquire is refused (waitInLine)   with a grant (giveWay), or when nobody listens
--             when first next, in ms    when the place is next (becomeNext)       as above
--   *         arrival in µs             when visitors may listen (letVisitorsIn)  as a place, and when nobody else waits
--             earliest next turn, in µs when they have one
--   =<place>  manyPermits + their number        when several permits are refused (waitInLine)  with the place, or when its client asks
--
-- A place is "<waiter>:<number>:<ms of its turn>". A waiter is a client's id, with ":r" behind it for the readers of the client, and ":w"
-- for its writers if they go in front of all readers. "*" is the place of all visitors: clients that know nothing of the line.
-- A turn reserves for its place what the place needs: the lock, its permits, or for a reader a share of the lock. The turn of a reader
-- lasts for those who wait with it. The writer at the head is next while readers have the lock, and so is the place at the head for which there are
-- too few permits: its word keeps others out.
-- Invariant: no turn and no word outlasts turnLimit, and each has its place in the line unless that has left; there are mostTurns of
-- them at most, and all stand in front of the places, since their scores are below zero. No place arrives later than turnLimit from now for
-- longer than until the next release.
local callFor, nextFor = 100, 1000 -- ms of a turn, unless its place says more, and of the word of a writer that is next
local visitFor, longVisitFor = 10, 50 -- ms of a turn of visitors: one in four is long, for slow ones; all are twice as long if visitors are many
local turnLimit, mostTurns = 10000, 8 -- ms: a turn that ends later is from before the server's clock was set back
local blindVisit, permitVisit = 1000000, 40000 -- µs between visits where nobody knows whether visitors wait; behind a visit to permits
local nextLook, readLook = 500, 1000 -- ms within which the writer that is next, and a reader beside readers, ask again uncalled
local permitLook = 1000 -- ms within which who waits for permits asks again uncalled, and 100 ms for each place in front
local keepsOut, letsIn = 3000, 2000 -- ms for which the writer that is next keeps readers out at first, and then lets them in at least
local keepsBack, longestBack = 2000, 8000 -- ms for which who is next for permits keeps others out, and lets them in, in turn: at first, at most
local keepsValues = 32 -- the same at first for values of a group
local lineLife = 25000 -- ms: each process asks more often as long as it waits
local share = 1 / 64 -- of a lock: so much have all its readers together
local manyPermits = 5000000000000000 -- a score behind all arrivals
local mostPassed = 100 -- places that a release passes over at most
local mostTogether = 100 -- turns and words, each, in a group of values: they are of different values
local mostAhead = 10 -- places for a common value that put off the next look: nobody tells when who is next begins to let others in
local mostSeen = 1000 -- places of a group that a release looks at
local fewPlaces = 20 -- of them a release asks whether their processes live
local inFront = 1000000000000 -- µs by which the place of a writer that goes first is older
local someone, nobody, visitorsToo = 1, 2, 4 -- who waits, as a release tells its client; 3 if nobody listens either

-- 1. Places.

local function serverTime()
    local time = redis.call('time')
    return time[1] * 1000000 + time[2]
end

-- waiterOf returns the waiter in a place, and the ms of its turn, if the place says both.
local function waiterOf(place)
    local waiter, turn = string.match(place, '^(.*):%d+:(%d+)$')
    return waiter or string.match(place, '^[^:]*'), turn
end

-- scoreAt returns the score of the member of a line at a rank.
local function scoreAt(line, rank)
    return tonumber(redis.call('zrange', line, rank, rank, 'withscores')[2])
end

-- needOf returns how much a turn of a place reserves. Of permits it is as many as the client of the place was refused last.
local anyNotes = nil -- whether there are any in the line
local function needOf(line, place)
    if string.find(place, ':r:', 1, true) then
        return share
    elseif anyNotes == nil then
        anyNotes = redis.call('zcount', line, manyPermits, '+inf') > 0
    end
    local rank = anyNotes and redis.call('zrank', line, '=' .. place)
    return rank and scoreAt(line, rank) - manyPermits or 1
end

-- arrival returns the score of a place taken now.
local function arrival(place, now)
    return string.format('%.0f', string.find(place, ':w:', 1, true) and now - inFront or now)
end

-- mark notes a turn ("!") or a word ("~") of a place, of so many ms.
local function mark(line, sign, place, lasts, now)
    redis.pcall('zadd', line, string.format('%.0f', -lasts - math.floor(now / 1000)), sign .. place)
end

-- giveWay ends a place ("leave"), or moves it to the end of the line for others of the same process ("move").
local function giveWay(line, place, stand)
    if line and stand == 'leave' then
        redis.pcall('zrem', line, place, '!' .. place, '~' .. place, '=' .. place)
    elseif line and stand == 'move' then
        redis.pcall('zadd', line, arrival(place, serverTime()), place)
        redis.call('pexpire', line, lineLife)
    end
end

-- 2. Turns. A table of turns has: of, the ms left by place; their count; how much they reserve; awaited: the permits for which a place with a
-- word waits; the ms left of the first; came: whether the waiter who asks has, or had until now, a turn; and visited: whether a turn of visitors
-- has ended, and of nobody else (nil: no turn has). These are the turns of others, but a reader's counts for its client, too.

local function noTurns()
    return {of = {}, count = 0, reserved = 0, awaited = 0, came = false}
end

-- visited tells whether in a line, list, visitors have a place for later: they have just had a turn.
local function visited(list, now)
    for i = 1, #list, 2 do
        if list[i] == '*' then
            return tonumber(list[i + 1]) > 1000 * now
        end
    end
    return false
end

-- turnsIn returns the turns at the beginning of a line, list, for a client that asks from a place. It ends the turn of this client, and
-- turns that are over. A word ends if enough is available. spare is what is left if the client has what it asks for: below 0 it is refused.
local function turnsIn(line, list, place, now, available, spare)
    local own, turns = waiterOf(place), noTurns()
    for i = 1, #list, 2 do
        local marked, left = list[i], -tonumber(list[i + 1]) - now
        if tonumber(list[i + 1]) >= 0 then
            break
        end
        local whose, lasts = string.sub(marked, 2), left > 0 and left <= turnLimit
        local need, word = needOf(line, whose), string.sub(marked, 1, 1) == '~'
        if own ~= '' and waiterOf(whose) == own then
            -- Another waiter of this client is still next; or it is called, and the client asks for too many without waiting.
            local keeps = lasts and whose ~= place and (word or spare < 0 and string.find(place, ':0$'))
            turns.came = turns.came or not keeps and (lasts or need >= 1)
            if not keeps and (not lasts or need >= 1) then
                redis.call('zrem', line, marked, (whose ~= place or whose == '*') and whose or marked, '=' .. whose)
            end
        elseif not lasts then
            redis.call('zrem', line, marked, whose == '*' and visited(list, now) and marked or whose, '=' .. whose)
            turns.visited = turns.visited == nil and whose == '*'
        elseif word and need <= available then
            redis.call('zrem', line, marked)
        else
            turns.of[whose], turns.count = left, turns.count + 1
            if word and need > 1 then
                turns.awaited = turns.awaited + need
            else
                turns.reserved = turns.reserved + need
            end
        end
    end
    return turns
end

-- endVisit ends the turn of visitors if less is free than all turns are for: a visitor has had it.
local function endVisit(line, turns, free)
    if not turns.of['*'] or turns.reserved <= free then
        return
    end
    redis.call('zrem', line, '!*', '*')
    turns.of['*'], turns.count, turns.reserved = nil, turns.count - 1, turns.reserved - 1
end

-- headFirst gives the first place a turn when that of visitors has ended and another client asks. A visitor's release tells all who wait, and
-- whoever hears it first would have the lock after each visit.
local function headFirst(line, list, place, turns, now)
    local first = nil
    for i = #list - 1, 1, -2 do
        local arrived = tonumber(list[i + 1])
        if arrived >= 0 and arrived < manyPermits and list[i] ~= '*' and needOf(line, list[i]) <= 1 then
            first = list[i]
        end
    end
    if not first or waiterOf(first) == waiterOf(place) then
        return
    end
    local _, turn = waiterOf(first)
    turn = tonumber(turn or callFor)
    mark(line, '!', first, turn, 1000 * now)
    turns.of[first], turns.count, turns.reserved = turn, 1, needOf(line, first)
end

-- reservedFor returns for how many ms too much of what is free is reserved for others, if more than spare is: so much remains beside what is
-- asked for. Otherwise it returns nil. The word of a place for permits keeps nobody out who has been called. It also returns the turns of others;
-- turns.waits tells whether the line has more than the place of visitors.
local function reservedFor(line, place, now, spare, free)
    if not line or place == '' then
        return nil, noTurns()
    end
    local list = redis.pcall('zrange', line, 0, mostTurns, 'withscores')
    local turns = turnsIn(line, list, place, now, 0, spare)
    endVisit(line, turns, free)
    if turns.count == 0 and turns.visited and not turns.came and spare == 0 and free == 1 then
        headFirst(line, list, place, turns, now)
    end
    for _, left in pairs(turns.of) do
        turns.first = math.min(turns.first or left, left)
    end
    turns.waits = list[3] or list[1] and list[1] ~= '*'
    return turns.reserved + (turns.came and 0 or turns.awaited) > spare and (turns.first or -1) or nil, turns
end

-- 3. A refused client.

-- lettingIn tells whether a writer that has been next since a time, in ms, lets readers in at a time in µs: they may wait for each other. The
-- writer keeps readers out for twice as long each time, so it has the lock in the end, however long each of them does. It then lets them in
-- for half of that at least, so they have a third of the time, however long the writer waits.
local function lettingIn(since, now)
    local waited, out = math.floor(now / 1000) - since, keepsOut
    while waited >= out do
        local open = math.max(letsIn, out / 2)
        if waited < out + open then
            return true
        end
        waited, out = waited - out - open, 2 * out
    end
    return false
end

-- phaseAt returns, for who has been next since a time, in ms, how many ms of the present phases have passed at a time in µs, and how long each of them
-- is: two at a time are as long, at first so many ms.
local function phaseAt(since, now, atFirst)
    local waited, out = math.floor(now / 1000) - since, atFirst
    while out < longestBack and waited >= 2 * out do
        waited, out = waited - 2 * out, 2 * out
    end
    return waited, out
end

-- sharing tells whether who has been next since a time, in ms, lets others have what is free at a time in µs, in turn with keeping it from
-- them. There may never be as much as it waits for, so others have half of the time.
local function sharing(since, now, atFirst)
    local waited, out = phaseAt(since, now, atFirst or keepsBack)
    return waited >= 0 and waited % (2 * out) >= out
end

-- becomeNext makes a client next if only visitors, and readers or who waits for permits with a turn, stand in front of its place. The place gets its
-- word, unless it lets others in. becomeNext returns the ms until the client should ask again, if it is next, and whether it has its word.
local function becomeNext(line, place, turns, permits)
    local marks, now, since = redis.call('zcount', line, '-inf', '(0'), serverTime(), math.huge
    local list = redis.call('zrange', line, marks, marks + mostTurns + 1, 'withscores')
    for i = 1, #list, 2 do
        if list[i] == place then
            since = tonumber(list[i + 1])
            break
        elseif list[i] ~= '*' and not (turns.of[list[i]] and (permits and turns.awaited == 0 or needOf(line, list[i]) < 1)) then
            return nil, false
        end
    end
    if since > now / 1000 then -- an arrival
        redis.call('zadd', line, math.floor(now / 1000), place)
    end
    local lets = permits and sharing or lettingIn
    local keeps = not lets(since, now)
    if keeps then
        mark(line, '~', place, nextFor, now)
    end
    return nextLook, keeps
end

-- waitInLine gives a refused client a place, unless it has one, and returns the ms until it should ask again uncalled: those left, at most
-- most if there is a bound, and the time that those in front of it have. beside has the turns of others for a writer refused because of readers,
-- and for who wants more permits than there are. permits, if any, are as many as the client was refused. waitInLine also returns whether
-- the place keeps others out.
local function waitInLine(line, place, stand, left, most, beside, permits)
    if not line or stand == '' then
        return left, false
    end
    local added = redis.pcall('zadd', line, 'nx', arrival(place, serverTime()), place)
    if type(added) == 'table' then
        return left, false -- a server that is out of memory has no place
    elseif added == 0 then
        redis.call('zrem', line, '!' .. place, '~' .. place, '=' .. place)
    end
    if (permits or 1) > 1 then
        redis.pcall('zadd', line, string.format('%.0f', manyPermits + permits), '=' .. place)
        anyNotes = true
    end
    redis.call('pexpire', line, lineLife)
    local bound, keeps = nil, false
    if beside then
        bound, keeps = becomeNext(line, place, beside, permits)
    end
    bound = bound or most
    if bound and (left < 0 or left > bound) then
        left = bound
    end
    if left < 0 then
        return left, keeps
    end
    local ahead = redis.call('zrank', line, place) - 2 * redis.call('zcount', line, '-inf', '(0') -- without the turns and their places
    return left + math.max(0, ahead) * callFor, keeps
end

-- 4. What is free is told. A server knows of the listeners to a lock's channels, counted: 0 only some of them, 1 all, 2 all that know
-- the line.

-- listenersOf returns channels with their numbers of listeners, as far as this server knows; nil if these are not to be known.
local function listenersOf(publish, channels)
    local counts = redis.pcall('pubsub', publish == 'SPUBLISH' and 'shardnumsub' or 'numsub', unpack(channels))
    for i = 2, #counts, 2 do
        if counts[i] > 1000000 then -- Valkey 9.1 counts 8, 15 and 16 listeners as some 10^14
            return nil
        end
    end
    return not counts.err and counts or nil
end

-- tellWaiter tells a waiter, if any listens, and returns the number of listeners, or an error as a table. Who listens by a pattern does not count.
local function tellWaiter(publish, channel, message, counted)
    local counts = publish == 'PUBLISH' and counted ~= '0' and listenersOf(publish, {channel})
    return counts and counts[2] == 0 and 0 or redis.pcall(publish, channel, message)
end

-- visitors returns how many of them listen to the lock's channel; -1 if it is not to be known.
local function visitors(channel, publish)
    local counts = listenersOf(publish, {channel, channel .. ':lockwire'})
    return counts and math.max(0, counts[2] - counts[4]) or -1
end

-- letVisitorsIn gives visitors a place if there may be any: behind the first place, a second behind it if nobody knows.
local function letVisitorsIn(line, first, listening, counted, now)
    if listening > 0 then
        -- not before a place that has just moved to the end: Valkey's clock stands still during a script
        redis.pcall('zadd', line, 'nx', arrival(first, now + 1), '*')
    elseif counted ~= '1' or listening < 0 then -- they may listen at another server
        redis.pcall('zadd', line, 'nx', arrival(first, now + blindVisit), '*')
    end
end

-- signFor returns how the turn of a place begins, "!" or "~", if beside other turns there is enough for it, and nil otherwise. available
-- is less than the whole lock if readers have it.
local function signFor(place, need, turns, available)
    if turns.count >= mostTurns then
        return nil
    elseif turns.reserved + need <= available then
        return '!'
    end
    return available > 0 and available < 1 and need == 1 and turns.reserved < 1 and place ~= '*' and '~' or nil
end

-- comeForward gives several visitors as many turns as if each had a place: their common place goes to the front when, of the places of processes,
-- one in so many visitors has had a turn since theirs. It returns how much longer their turn is: up to twice if visitors are more than processes.
local function comeForward(line, listening, turns)
    local rank = redis.call('zrank', line, '*')
    if not rank or turns.of['*'] then
        return 1
    end
    local front = rank - 2 * turns.count
    local others = math.max(1, redis.call('zcount', line, '0', manyPermits) - turns.count - 1)
    if front > 0 and front * listening <= others * (listening - 1) then
        redis.pcall('zadd', line, string.format('%.0f', scoreAt(line, turns.count) - 1), '*')
    end
    return math.max(1, math.min(2, listening / others))
end

-- visitTurn returns the ms of a turn of visitors that begins now.
local function visitTurn(now)
    return math.floor(now / 1000) % 4 == 0 and longVisitFor or visitFor
end

-- putOff follows the begin of a turn of visitors of so many ms: the next one comes after as long a pause, so they have half of the time at most. It
-- returns the ms until then.
local function putOff(line, listening, now, before, visit)
    local turn = 1000 * visit
    local pause = listening <= 0 and blindVisit or before and permitVisit or turn
    redis.pcall('zadd', line, arrival('*', now + turn + pause), '*')
    return (turn + pause) / 1000
end

-- teller returns a function that tells the client of a place, or all visitors, and returns the number of listeners or an error as a table, and
-- the ms of a turn; those of visitors are said.
local function teller(channel, publish, message, listening, counted, visit)
    return function(place)
        if place ~= '*' then
            local waiter, turn = waiterOf(place)
            return tellWaiter(publish, channel .. ':' .. waiter, message, counted), turn or callFor
        end
        return (listening ~= 0 or counted ~= '1') and redis.pcall(publish, channel, message) or 0, visit
    end
end

-- placesFrom returns places that begin at a rank.
local function placesFrom(line, at)
    local places = redis.call('zrange', line, at, at + mostTurns)
    while places[1] and string.sub(places[#places], 1, 1) == '=' do
        table.remove(places)
    end
    return places
end

-- callPlaces tells places, which begin at a rank, and those behind them. The first that listens gets a turn, if there is enough for it. The
-- one behind watches over the turn: it asks when that ends. Behind the writer that is next, only readers are told: they come in while it lets
-- them. Behind the first place that needs more permits than are available nobody is told, unless it lets others in: then it is passed over, with
-- others for which there are too few. over has been so before, if anybody. callPlaces returns the place that has got a turn, how many watch,
-- whether enough do, or a place is next, and the places passed over.
local function callPlaces(line, places, at, turns, available, counted, now, tell, over)
    local called, watchers, enough, passed = nil, 0, counted == '0' and 3 or 1, {over} -- more watch where nobody knows who listens
    local readers = available > 0 and available < 1 and turns.reserved >= 1 -- only they are told
    while places[1] and #passed < mostPassed do
        for _, place in ipairs(places) do
            local need = needOf(line, place)
            local lacks = need > math.max(1, available)
            -- Nobody goes before one for whom there is not enough.
            local sign = not called and watchers == 0 and signFor(place, need, turns, available)
            if lacks and (passed[1] or sharing(scoreAt(line, at), now)) then
                at = at + 1
                table.insert(passed, place)
            elseif lacks and turns.of[place] then
                return called, watchers, true, passed
            elseif turns.of[place] or place == '*' and not sign or readers and need >= 1 then
                at = at + 1
            elseif sign == '~' and lettingIn(scoreAt(line, at), now) then
                at, readers = at + 1, true -- it asks by itself
            else
                local told, turn = tell(place)
                if type(told) == 'table' then
                    return called, watchers, true, passed -- the user may not publish: waiters look by themselves
                elseif told == 0 and counted ~= '0' then
                    redis.call('zrem', line, place, '=' .. place)
                elseif sign then
                    mark(line, sign, place, sign == '~' and nextFor or turn, now)
                    redis.call('pexpire', line, lineLife)
                    at, called, readers = at + 2, place, readers or sign == '~'
                else
                    at, watchers = at + 1, watchers + 1
                    if lacks and turns.awaited == 0 then
                        mark(line, '~', place, turn, now) -- until it asks; who does not ask has no place any more
                    end
                    if watchers == enough or lacks then
                        return called, watchers, true, passed
                    end
                end
            end
        end
        places = placesFrom(line, at)
    end
    return called, watchers, readers, passed
end

-- endUnheard ends those of the places that were passed over for which nobody listens. Nobody else would find out.
local function endUnheard(line, places, channel, publish)
    local channels = {}
    for i, place in ipairs(places) do
        channels[i] = channel .. ':' .. waiterOf(place)
    end
    local counts = places[1] and listenersOf(publish, channels) or {}
    for i, place in ipairs(places) do
        if counts[2 * i] == 0 then
            redis.call('zrem', line, place, '~' .. place, '=' .. place)
        end
    end
end

-- visitAlone gives visitors a turn where nobody of the line waits: who frees a lock and asks again at once would have it before them for ever.
-- They have none if they could have come before.
local function visitAlone(line, list, listening, available, now, before)
    if listening <= 0 or before and before > 0 then
        redis.call('zrem', line, '*')
    elseif available >= 1 and not visited(list, now / 1000) then
        local visit = visitTurn(now)
        mark(line, '!', '*', visit, now)
        redis.call('pexpire', line, putOff(line, listening, now, before, visit))
    end
end

-- sinceNow gives places that arrive long after now an arrival now, in their order: the server's clock was set back, and who comes or moves would
-- go before them until the clock is where it was.
local function sinceNow(line, now)
    local ahead = redis.call('zcount', line, string.format('%.0f', now + 1000 * turnLimit), manyPermits)
    local last = ahead > 0 and redis.call('zcount', line, '-inf', manyPermits) - 1
    for i, place in ipairs(last and redis.call('zrange', line, last - ahead + 1, last) or {}) do
        redis.pcall('zadd', line, arrival(place, now + i), place)
    end
end

-- callNext gives a turn to the first in front, or behind a place, unless too much of what is available is reserved: who has it calls the
-- next. before is how much was available before this script: nil for a lock that it frees. It returns false if it has called nobody; otherwise
-- true. It also returns who is known to wait besides the client with this id.
local function callNext(line, channel, publish, counted, id, message, available, before, behind)
    local list = redis.pcall('zrange', line, 0, mostTurns, 'withscores')
    local now, listening = serverTime(), visitors(channel, publish)
    if list.err or not list[1] and listening <= 0 then
        return false, nobody
    end
    sinceNow(line, now)
    local turns = turnsIn(line, list, '', math.floor(now / 1000), available, 0)
    endVisit(line, turns, before or 0)
    if turns.of['*'] and available > (before or available) and listening ~= 0 then
        redis.pcall(publish, channel, message) -- a message wakes as many visitors as it says
    end
    local rank = behind and redis.call('zrank', line, behind)
    local at = rank and rank + 1 or turns.count
    local places = placesFrom(line, at)
    if turns.count == 0 and not behind and (not places[1] or places[1] == '*' and not places[2]) then
        visitAlone(line, list, listening, available, now, before)
        return false, listening > 0 and visitorsToo or nobody
    elseif (places[1] or behind) and places[1] ~= '*' then
        letVisitorsIn(line, places[1] or behind, listening, counted, now)
        places = places[1] and places or placesFrom(line, at)
    end
    local visit = visitTurn(now)
    if listening > 1 and not behind then
        visit = math.floor(visit * comeForward(line, listening, turns))
        places = placesFrom(line, at)
    end
    local tell = teller(channel, publish, message, listening, counted, visit)
    local over = rank and needOf(line, behind) > math.max(1, available) and behind or nil
    local called, watchers, watched, passed = callPlaces(line, places, at, turns, available, counted, now, tell, over)
    endUnheard(line, counted ~= '0' and passed or {}, channel, publish)
    if called == '*' then
        putOff(line, listening, now, before, visit)
    elseif called and listening ~= 0 and available >= 1 and (watchers == 0 and not watched or available > (before or available)) then
        tell('*') -- should the called process hang, nobody else would ask; and visitors who wait for permits never ask by themselves
    end
    local further = turns.count > 0 or watched or passed[1] ~= nil
    local alone = called and listening == 0 and watchers == 0 and not further and string.sub(called, 1, #id) == id
    return called ~= nil or further or behind ~= nil, alone and nobody or listening > 0 and visitorsToo or someone
end

-- tellFree tells the next in the line that so much is available; without a line it tells all, by a message, unless so many have been told. It
-- returns who waits besides the client with this id.
local function tellFree(line, channel, publish, counted, id, message, available, before, told)
    if publish == '' then
        return someone
    end
    local lined, waiting = false, nobody
    if line then
        lined, waiting = callNext(line, channel, publish, counted, id, message, available, before)
    end
    if lined and available > 0 and available < 1 and visitors(channel, publish) > 0 then
        redis.pcall(publish, channel, message) -- readers without a line may come in, beside the others
    end
    if lined then
        return waiting
    end
    told = told or redis.pcall(publish, channel, message)
    if waiting ~= nobody then
        return waiting
    end
    return type(told) == 'number' and told < 2 and 3 - told or someone
end

-- passOn tells the next in the line of what is left.
local function passOn(line, channel, publish, counted, available)
    if available > 0 and redis.call('exists', line) == 1 then
        tellFree(line, channel, publish, counted, '', available, available, available)
    end
end

-- 5. Read-write locks.

-- availableOf returns how much of a lock is available: also of one that has readers.
local function availableOf(lock)
    return redis.pcall('hget', lock, 'mode') == 'read' and 1 - share or 1 - redis.call('exists', lock)
end

-- admitReader follows the grant to a reader: others of its process who wait come in too, by its turn, and the next in the line is called.
-- first is true for the first of all readers.
local function admitReader(line, place, stand, turns, first, channel, publish, counted)
    giveWay(line, place, stand)
    if not turns.waits or turns.reserved >= 1 and stand ~= 'leave' then
        return -- nobody waits, or a writer is next: the last reader of a process tells those behind it
    end
    if stand == 'move' and not turns.came and turns.count < mostTurns then
        local _, turn = waiterOf(place)
        mark(line, '!', place, turn or callFor, serverTime())
    end
    local tell = first and tellFree or callNext -- of the first, readers of Redisson's processes hear, too: all may come in
    tell(line, channel, publish, counted, '', '1', 1 - share)
end

-- 6. Permits.

-- refusePermits refuses a client so many permits, and returns the ms until it should ask again uncalled. left is the time until more may be free
-- by themselves. A client that was called passes the call on, unless it keeps others out.
local function refusePermits(line, channel, publish, counted, place, stand, permits, left, turns, free)
    turns = turns or noTurns()
    local stood, keeps = nil, false
    if turns.came and redis.call('zrank', line, place) then
        stood = place
    end
    left, keeps = waitInLine(line, place, stand, left, permitLook, permits > math.max(1, free) and turns or nil, permits)
    if turns.came and not keeps and free > turns.reserved + turns.awaited then
        callNext(line, channel, publish, counted, '', free, free, free, stood)
    end
    return left
end
