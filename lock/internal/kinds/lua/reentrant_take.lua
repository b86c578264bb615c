-- Reentrant lock, take: an acquire, at the line that names this file, as far as the further hold of an owner who has the lock already.
-- It uses the script's lock, latch and line, lease, owner and now, place and stand as all_line.lua has them, and draw: a function that draws
-- a token, nil for a lock without tokens.

if stand ~= 'move' and redis.call('exists', lock, latch, line or lock) == 0 then -- one question in place of three
    local first = draw and {1, draw()} or nil
    redis.call('hset', lock, owner, '1')
    redis.call('pexpire', lock, lease)
    return first
end
-- all_line.lua
if redis.call('exists', latch) == 1 then
    return -1 -- undone: nobody waits for this any more
end
if redis.call('exists', lock) == 0 then
    local left = reservedFor(line, place, now, 0, 1)
    if left then
        return waitInLine(line, place, stand, left)
    end
    local first = draw and {1, draw()} or nil
    redis.call('hset', lock, owner, '1')
    redis.call('pexpire', lock, lease)
    giveWay(line, place, stand)
    return first
elseif redis.call('hexists', lock, owner) == 0 then
    return waitInLine(line, place, stand, redis.call('pttl', lock))
end
