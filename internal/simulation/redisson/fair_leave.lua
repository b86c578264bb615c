-- redisson fair lock, leave: takes an owner who gives up out of the queue.
-- KEYS  1 queue  2 timeouts
-- ARGV  1 owner  2 wait in ms
local behind = false
for _, member in ipairs(redis.call('lrange', KEYS[1], 0, -1)) do
    if behind then
        redis.call('zincrby', KEYS[2], -tonumber(ARGV[2]), member)
    end
    behind = behind or member == ARGV[1]
end
redis.call('zrem', KEYS[2], ARGV[1])
redis.call('lrem', KEYS[1], 0, ARGV[1])
return nil
