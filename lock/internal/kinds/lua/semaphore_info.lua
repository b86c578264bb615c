-- Semaphore, info: what there is to see of the semaphore at one instant.
-- KEYS  1 semaphore  2 its channel
-- Returns a list: the number of free permits, and the remaining lifetime of the key in ms (-1: it has none);
--         an empty one when there is no semaphore.

-- all_number.lua
return value and {tonumber(value), redis.call('pttl', KEYS[1])} or {}
