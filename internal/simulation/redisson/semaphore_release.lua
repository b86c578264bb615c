-- redisson semaphore, release: gives permits back, and tells how many there are.
-- KEYS  1 semaphore  2 channel
-- ARGV  1 permits  2 publish command
redis.call(ARGV[2], KEYS[2], redis.call('incrby', KEYS[1], ARGV[1]))
return nil
