-- Read lock, undo: takes back an acquire, or a downgrade, whose outcome its caller does not know.
-- KEYS  1 lock  2 its channel  3 writers that wait
--       4 latch: keeps the acquire, and this, from taking effect later
-- ARGV  1 lease in ms that the owner's remaining holds need  2 owner  3 publish command
--       4 hold count that the owner had before  5 lifetime of the latch in ms  6 not used
--       7 of a downgrade, whose write hold is to end in any case: how many others the owner has
-- Returns 1 when there was something to take back, else 0; running it again does no harm.
local lock, channel, latch = KEYS[1], KEYS[2], KEYS[4]
local lease, owner, publish, before, lifetime, others = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[7])
local prefix, writer = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}', owner .. ':write'

if latch and redis.call('exists', latch) == 1 then
    return 0
end
if latch then
    redis.call('set', latch, 0, 'px', lifetime)
end
local count = redis.call('hget', lock, 'mode') and tonumber(redis.call('hget', lock, owner) or 0) or 0
local ends = others and others < tonumber(redis.call('hget', lock, writer) or 0)
if count <= before and not ends then
    return 0
end
local rest = count <= before and count or tonumber(lease) > 0 and before or 0
for n = rest + 1, count do
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
local left, fields = 0, redis.call('hgetall', lock)
for i = 1, #fields, 2 do
    for n = 1, tonumber(fields[i + 1]) or 0 do
        left = math.max(left, redis.call('pttl', prefix .. ':' .. fields[i] .. ':rwlock_timeout:' .. n))
    end
end
if left > 0 then
    redis.call('pexpire', lock, left)
else
    redis.call('del', lock)
end
if freed or left <= 0 then
    redis.pcall(publish, channel, freed and '1' or '0')
end
return 1
