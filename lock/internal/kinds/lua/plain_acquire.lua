-- Plain lock, acquire: sets the key for an owner who finds it free.
-- KEYS  1 lock: a string, its owner  2 latch: there once this very request has been undone
-- ARGV  1 lease in ms  2 owner  3 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing;
--         otherwise nil when it is set, 'reentry' as a status if the owner has it already,
--         and otherwise the remaining lease of the other holder in ms (-1: it has none).
local lock, latch = KEYS[1], KEYS[2]
local lease, owner, last = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- all_late.lua
if redis.call('exists', lock, latch) == 0 then -- one question in place of two
    redis.call('set', lock, owner, 'px', lease)
    return nil
end
if redis.call('exists', latch) == 1 then
    return -1 -- undone: nobody waits for this any more
end
if redis.call('get', lock) == owner then -- an error for a key of another type
    return redis.status_reply('reentry')
end
return redis.call('pttl', lock)
