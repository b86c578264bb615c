-- Countdown latch, acquire: tells whether the count is 0.
-- KEYS  1 latch: a string, the count; there while it is more than 0  2 its channel
-- ARGV  1 not used
-- Returns nil when it is, and otherwise the remaining lifetime of the key in ms (-1: it has none).

-- all_number.lua
if tonumber(value or 0) <= 0 then
    return nil
end
return redis.call('pttl', KEYS[1])
