-- redisson lock, force: frees the lock, whoever has it.
-- KEYS  1 lock  2 channel
-- ARGV  1 message  2 publish command
if redis.call('del', KEYS[1]) == 0 then
    return 0
end
redis.call(ARGV[2], KEYS[2], ARGV[1])
return 1
