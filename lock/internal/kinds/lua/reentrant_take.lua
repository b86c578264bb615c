-- Reentrant lock, take: the beginning of an acquire, at the line that names this file: an owner who finds the lock free takes it.
-- It uses the script's lock, latch and line, lease, owner and last, and place and stand as all_line.lua has them.
-- all_late.lua
if stand ~= 'move' and redis.call('exists', lock, latch, line or lock) == 0 then -- one question in place of three
    redis.call('hincrby', lock, owner, 1)
    redis.call('pexpire', lock, lease)
    return nil
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
    redis.call('hincrby', lock, owner, 1)
    redis.call('pexpire', lock, lease)
    giveWay(line, place, stand)
    return nil
end
