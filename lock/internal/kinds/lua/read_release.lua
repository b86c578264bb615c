-- Read lock, release: gives one hold back, and the lock with the last one of all readers.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 lease of the owner's first hold
--       5 latch: the outcome of this very request, should it be repeated  6.. leases of the owner's further holds, then the line, if any
--       Those of other readers, whom nobody knows before, are asked for where the server allows it.
-- ARGV  1 lease in ms that the owner's remaining holds need (0: none is alive any more)
--       2 owner  3 publish command  4 lifetime of the latch in ms
--       5 1 for a repeat, which keeps an earlier request from taking effect later  6 when this is too late, in ms since 1970
--       7 what the server knows of listeners  8 client's id  9 its place in the line  10 what becomes of it: "leave", "move", ''
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the owner has no read hold any more, 0 when it has further ones, nil when it had none.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[5]
local lease, owner, publish, lifetime, repeated, last = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local line, counted, id = lineIn(KEYS, lock), ARGV[7], ARGV[8]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local hold = prefix .. ':' .. owner .. ':rwlock_timeout:'

local function remaining(gone) -- for how many ms readers have the lock, without one who had it for that long
    local kept, few, left = redis.call('pttl', lock), 32, 0
    local many = kept > 0 and redis.call('hlen', lock) > few
    local enough = many and kept - kept / 4 or math.huge -- somebody who stays for nearly as long is as good as the longest
    if many and gone < enough then return kept end
    for look = many and 1 or 2, 2 do
        local fields = look == 1 and redis.call('hscan', lock, 0, 'count', few)[2] or redis.call('hgetall', lock)
        for i = 1, #fields, 2 do
            for n = 1, left < enough and tonumber(fields[i + 1]) or 0 do
                local lasts = redis.pcall('pttl', prefix .. ':' .. fields[i] .. ':rwlock_timeout:' .. n)
                if type(lasts) ~= 'number' then return kept end -- it is not to be known
                left = math.max(left, lasts)
            end
        end
        if left >= enough then return math.max(kept, left) end
    end
    return left
end

local function leave(count, rest) -- has so many of the owner's holds remain; the last one of all readers frees the lock
    local gone, alive = 0, 0
    for n = 1, rest do
        alive = alive + redis.call('pexpire', hold .. n, lease) -- whose lease was whose, the server does not know
    end
    if rest > 0 and alive == 0 then redis.call('set', hold .. rest, 1, 'px', lease) end
    -- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
    for n = rest + 1, count do
        gone = math.max(gone, redis.call('pttl', hold .. n))
        redis.call('del', hold .. n)
    end
    if rest > 0 then
        redis.call('hset', lock, owner, rest)
        redis.call('pexpire', lock, math.max(tonumber(lease), redis.call('pttl', lock)))
    else redis.call('hdel', lock, owner) end
    local left = redis.call('hget', lock, 'mode') == 'read' and remaining(gone)
    if left and left > 0 then
        redis.call('pexpire', lock, left)
    elseif left == 0 then
        redis.call('del', lock)
        tellFree(line, channel, publish, counted, id, '0', 1)
    end -- beneath its owner's write lock, whose lease the server does not know, nothing is shortened
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > last then return redis.status_reply('late ' .. string.format('%.0f', now)) end
lifetime = math.max(lifetime, last - now) -- an earlier request may come for as long as it is good
local outcome = redis.call('get', latch)
if outcome then return outcome ~= '-1' and tonumber(outcome) or nil end
local mode, count = unpack(redis.call('hmget', lock, 'mode', owner))
count = mode and tonumber(count)
if not count then
    redis.call('del', KEYS[4], unpack(KEYS, 6, line and #KEYS - 1 or #KEYS))
    if repeated == '1' then redis.call('set', latch, -1, 'px', lifetime) end
    return nil
end
local rest = tonumber(lease) > 0 and count - 1 or 0
giveWay(line, ARGV[9], ARGV[10])
if rest == 0 and count == 1 and mode == 'read' and redis.call('hlen', lock) == 2 then -- the last of all readers
    redis.call('del', lock, hold .. 1)
    tellFree(line, channel, publish, counted, id, '0', 1)
else leave(count, rest) end
redis.call('set', latch, rest > 0 and 0 or 1, 'px', lifetime)
return rest > 0 and 0 or 1
