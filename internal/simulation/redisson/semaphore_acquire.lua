-- redisson semaphore, acquire: takes permits if there are enough.
-- KEYS  1 semaphore
-- ARGV  1 permits
local free = redis.call('get', KEYS[1])
if not free or tonumber(free) < tonumber(ARGV[1]) then
    return 0
end
redis.call('decrby', KEYS[1], ARGV[1])
return 1
