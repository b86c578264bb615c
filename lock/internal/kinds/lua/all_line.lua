-- All kinds, line: what stands in front of the scripts of a lock for which processes wait in a line. Each has its turn.
-- The line is a sorted set. A process has a place in it, "<client's id>:<number>:<ms of its turn>", with the server's time of its
-- arrival in µs.
-- All clients that know nothing of the line have one place together, "*", as long as any of them listens to the lock's channel.
-- Who is called to take the free lock has left its place, and stands as "!<place>" at the head; its score is the end of its turn, in
-- ms and below zero. Until then nobody else of the line takes the lock.
local callFor = 100 -- ms of a turn, unless its place says more
local visitFor, longVisitFor = 10, 50 -- ms of a turn of the clients that know nothing of the line: one in four is long, for slow ones
local turnLimit = 10000 -- ms: a turn that ends later is from before the server's clock was set back
local blindVisit = 1000000 -- µs between visits where it is unknown whether any of them waits
local lineLife = 25000 -- ms: each process asks more often as long as it waits

local function serverTime()
    local time = redis.call('time')
    return time[1] * 1000000 + time[2]
end

-- reservedFor returns how long the lock is for somebody else to take, in ms, and nil if it is not. It ends the turn of the asking
-- client, given by its id.
local function reservedFor(line, id, now)
    if not line or id == '' then
        return nil
    end
    local head = redis.pcall('zrange', line, 0, 0, 'withscores')
    local score = tonumber(head[2] or 0)
    if score >= 0 or -score <= now or -score > now + turnLimit then
        return nil
    end
    if string.sub(head[1], 2, 1 + #id) == id then
        redis.call('zrem', line, head[1])
        return nil
    end
    return -score - now
end

-- waitInLine gives a refused client a place unless it has one, and returns when it should ask again without having been called: after
-- left, and after those in front of it had the time to.
local function waitInLine(line, place, stand, left)
    if not line or stand == '' then
        return left
    end
    local added = redis.pcall('zadd', line, 'nx', string.format('%.0f', serverTime()), place)
    if type(added) == 'table' then
        return left -- a server that is out of memory has no place
    end
    redis.call('pexpire', line, lineLife)
    if left < 0 then
        return left
    end
    local ahead = redis.call('zrank', line, place)
    if tonumber(redis.call('zrange', line, 0, 0, 'withscores')[2]) < 0 then
        ahead = ahead - 1
    end
    return left + ahead * callFor
end

-- giveWay ends a place ("leave"), or moves it to the end of the line for others of the same process ("move").
local function giveWay(line, place, stand)
    if line and stand == 'leave' then
        redis.pcall('zrem', line, place)
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

-- call publishes to the client of a place, and returns the number of listeners, or an error as a table.
local function call(channel, publish, place)
    return redis.pcall(publish, channel .. ':' .. string.match(place, '^[^:]*'), '0')
end

-- What a server knows of the listeners to a lock's channels, counted: 0 only some of them, 1 all, 2 all that know the line.

-- tellWatcher tells the first behind the one called, who then asks when the turn ends; some more where nobody knows who listens.
-- It returns whether there is one.
local function tellWatcher(line, channel, publish, counted)
    local told = 0
    for _, place in ipairs(redis.call('zrange', line, 1, 8)) do
        if place ~= '*' then
            if call(channel, publish, place) ~= 0 or counted == '0' then
                told = told + 1
            else
                redis.call('zrem', line, place)
            end
        end
        if told == (counted == '0' and 3 or 1) then
            break
        end
    end
    return told > 0
end

-- tellFree tells the next in the line that the lock is free, and the one behind to watch over it; without a line it tells all. It
-- returns how many listen, 0 or 1, if no other client than the one with this id is known to wait; otherwise false.
local function tellFree(line, channel, publish, counted, id)
    if publish == '' then
        return false
    end
    local head = line and redis.pcall('zpopmin', line) or {}
    local others = head[1] and strangers(channel, publish) or 0
    local now = head[1] and serverTime()
    if others > 0 and string.match(head[1], '^%w') then
        -- behind a place that has just moved to the end: Valkey's clock stands still during a script
        redis.pcall('zadd', line, 'nx', string.format('%.0f', now + 1), '*')
    elseif now and (counted ~= '1' or others < 0) and string.match(head[1], '^%w') then -- they may listen at another server
        redis.pcall('zadd', line, 'nx', string.format('%.0f', now + blindVisit), '*')
    end
    while head[1] do
        local place, score, turn, told = head[1], tonumber(head[2]), callFor, 0
        if place == '*' then
            if redis.call('zcard', line) == 0 then
                break -- nobody of the line waits: they need no turn
            end
            turn, told = now % 4 == 0 and longVisitFor or visitFor, (others ~= 0 or counted ~= '1') and redis.pcall(publish, channel, '0') or 0
        elseif score >= 0 then
            told = call(channel, publish, place)
            turn = tonumber(string.match(place, '^[^:]*:%d+:(%d+)$')) or callFor
        end
        if type(told) == 'table' then
            return false -- the user may not publish: waiters look by themselves
        end
        if (told > 0 or counted == '0') and score >= 0 then
            redis.pcall('zadd', line, string.format('%.0f', -turn - math.floor(now / 1000)), '!' .. place)
            redis.call('pexpire', line, lineLife)
            local watched = tellWatcher(line, channel, publish, counted)
            return others == 0 and not watched and string.sub(place, 1, #id) == id and 1
        end
        head = redis.call('zpopmin', line)
    end
    local told = redis.pcall(publish, channel, '0')
    return type(told) == 'number' and told < 2 and told
end
