-- Read lock, force: frees the lock if readers have it, whoever they are.
-- KEYS  1 lock  2 its channel  3 writers that wait
-- ARGV  1 publish command
-- Returns 1 when readers had the lock, else 0. A key of another type is an error and stays.
local lock, channel = KEYS[1], KEYS[2]
local publish = ARGV[1]

if redis.call('hget', lock, 'mode') ~= 'read' then
    return 0
end
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local fields = redis.call('hgetall', lock)
for i = 1, #fields, 2 do
    for n = 1, tonumber(fields[i + 1]) or 0 do
        redis.call('del', prefix .. ':' .. fields[i] .. ':rwlock_timeout:' .. n)
    end
end
redis.call('del', lock)
redis.pcall(publish, channel, '0') -- a user who may not publish leaves waiters to look by themselves
return 1
