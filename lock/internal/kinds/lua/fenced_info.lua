-- Fenced lock, info: what there is to see of the lock at one instant.
-- KEYS  1 lock  2 the last token
-- Returns the last token, the remaining lease in ms (-1: none, -2: not locked), then owner and hold count in turn.

-- reentrant_holder.lua
return {redis.call('get', KEYS[2]) or '0', redis.call('pttl', KEYS[1]), unpack(holder)}
