-- All kinds, ask: what a renewal asks a key, at the line that names this file.

-- ask is redis.call, and the error as a table for a key of another type: it must not keep the rest from being renewed. Any other error, as of a
-- missing right, says nothing about the lock.
local function ask(...)
    local reply = redis.pcall(...)
    if type(reply) == 'table' and reply.err and not string.find(reply.err, 'WRONGTYPE', 1, true) then
        return redis.call(...)
    end
    return reply
end
