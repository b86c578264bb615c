-- All kinds, look: whether a key is there, and the time of the server that would have it.
-- KEYS  1 a key of any type
-- Returns a list: 1 if it is there, else 0, and the server's time in ms.
local time = redis.call('time')
return {redis.call('exists', KEYS[1]), time[1] * 1000 + math.floor(time[2] / 1000)}
