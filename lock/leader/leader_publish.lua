-- Leader, publish: notes who leads, where and since when, and its token, if that owner has the lock.
-- KEYS  1 record: a hash of owner, address, since and token  2 lock: a hash of the owner to its hold count. The lock is missing while its slot
--       migrates: a server refuses both together. Then a later leader is not overwritten, and who reads the record compares the owners.
-- ARGV  1 owner  2 address  3 token
-- Returns 1, or 0 if the owner does not have the lock or a later one has led since, which changes nothing.
local record, lock = KEYS[1], KEYS[2]
local owner, address, token = ARGV[1], ARGV[2], ARGV[3]

if lock and redis.call('hexists', lock, owner) == 0 then
    return 0
end
if not lock and (tonumber(redis.call('hget', record, 'token') or 0) or 0) > tonumber(token) then
    return 0
end
local time = redis.call('time')
local since = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('hset', record, 'owner', owner, 'address', address, 'since', since, 'token', token)
return 1
