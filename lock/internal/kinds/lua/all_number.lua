-- All kinds, number: an error if the lock is a key that holds no number, at the line that names this file.
-- It uses KEYS[1]. Behind it, value is the number as text, false without a key.
local value = redis.call('get', KEYS[1])
if value and not string.match(value, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE The key does not hold a number')
end
