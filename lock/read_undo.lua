-- Read lock, undo: takes back an acquire, or a downgrade, whose outcome its caller does not know.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 lease of the owner's first hold
--       5 latch, if there is one: keeps the acquire, and this, from taking effect later  6.. leases of the owner's further holds
--       Those of other readers, whom nobody knows before, are asked for where the server allows it.
-- ARGV  1 lease in ms that the owner's remaining holds need  2 owner  3 publish command
--       4 hold count that the owner had before  5 when this is too late, in ms since 1970: no earlier than that of the acquire
--       6 not used
--       7 of a downgrade, whose write hold is to end in any case: how many others the owner has
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when there was something to take back, else 0; running it again does no harm.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[5]
local lease, owner, publish, before = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local last, others = tonumber(ARGV[5]), tonumber(ARGV[7])
local prefix, writer = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}', owner .. ':write'

local function longest(fields, enough) -- the longest lease in ms of these readers, or one that is enough; nil: not to be known
    local left = 0
    for i = 1, #fields, 2 do
        for n = 1, left < enough and tonumber(fields[i + 1]) or 0 do
            local lasts = redis.pcall('pttl', prefix .. ':' .. fields[i] .. ':rwlock_timeout:' .. n)
            if type(lasts) ~= 'number' then return nil end
            left = math.max(left, lasts)
        end
    end
    return left
end

local function remaining(gone) -- for how many ms readers have the lock, without one who had it for that long
    local kept, few = redis.call('pttl', lock), 32
    if kept > 0 and redis.call('hlen', lock) > few then -- somebody who stays for nearly as long is as good as the longest
        local enough = kept - kept / 4
        local left = gone < enough and kept or longest(redis.call('hscan', lock, 0, 'count', few)[2], enough)
        if not left or left >= enough then return math.max(kept, left or 0) end
    end
    return longest(redis.call('hgetall', lock), math.huge) or kept
end

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > last then
    return redis.status_reply('late ' .. string.format('%.0f', now))
end
if latch then
    local left = redis.call('pttl', latch)
    redis.call('set', latch, 0, 'px', math.max(1, last - now, left))
    if left > -2 then
        return 0 -- it has been undone
    end
end
local count = redis.call('hget', lock, 'mode') and tonumber(redis.call('hget', lock, owner) or 0) or 0
local ends = others and others < tonumber(redis.call('hget', lock, writer) or 0)
if count <= before and not ends then
    return 0
end
local rest = count <= before and count or tonumber(lease) > 0 and before or 0
local had = ends and math.huge or 0
for n = rest + 1, count do
    had = math.max(had, redis.call('pttl', prefix .. ':' .. owner .. ':rwlock_timeout:' .. n))
    redis.call('del', prefix .. ':' .. owner .. ':rwlock_timeout:' .. n)
end
for n = 1, rest < count and rest or 0 do
    redis.call('set', prefix .. ':' .. owner .. ':rwlock_timeout:' .. n, 1, 'px', lease)
    redis.call('pexpire', lock, math.max(tonumber(lease), redis.call('pttl', lock)))
end
if rest > 0 then
    redis.call('hset', lock, owner, rest)
else
    redis.call('hdel', lock, owner)
end
local freed = ends and others == 0
if freed then
    redis.call('hdel', lock, writer)
    redis.call('hset', lock, 'mode', 'read')
elseif ends then
    redis.call('hset', lock, writer, others)
end
if redis.call('hget', lock, 'mode') ~= 'read' then
    return 1 -- beneath its owner's write lock nothing is shortened
end
local left = remaining(had)
if left > 0 then
    redis.call('pexpire', lock, left)
elseif left == 0 then
    redis.call('del', lock)
end
if freed or left == 0 then
    redis.pcall(publish, channel, freed and '1' or '0')
end
return 1
