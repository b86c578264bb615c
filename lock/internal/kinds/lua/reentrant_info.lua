-- Reentrant lock, info: what there is to see of the lock at one instant.
-- KEYS  1 lock  2 its channel
-- Returns the remaining lease in ms (-1: none, -2: not locked), then owner and hold count in turn.

-- reentrant_holder.lua
return {redis.call('pttl', KEYS[1]), unpack(holder)}
