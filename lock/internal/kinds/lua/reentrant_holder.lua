-- Reentrant lock, holder: an error if the lock is a key of another kind, at the line that names this file.
-- It uses KEYS[1]. Behind it, holder is the owner and its hold count, or empty.
local holder = redis.call('hgetall', KEYS[1])
if #holder > 2 or holder[2] and not string.match(holder[2], '^%d+$') then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
