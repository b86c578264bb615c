-- Fenced lock, handover: gives the lock from an owner that never has another hold to one who waits in the same process.
-- The next owner gets the next token.
-- KEYS  1 lock  2 the last token  3 latch, as of the reentrant lock's
--       4 latch of the next owner: there once the hand-over to it has been undone
-- ARGV  1 lease in ms of the next owner  2 owner  3 next owner  4 lifetime of the latch in ms
--       5 what the tokens are, as of acquire  6 not used
--       7 when this is too late, in ms since 1970
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 and the token when the next owner has the lock, nil when the owner did not.
local lock, token, latch, undone = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, owner, heir, lifetime, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local last = tonumber(ARGV[7])

-- all_late.lua
if redis.call('exists', undone) == 1 then
    return nil
end
if redis.call('hexists', lock, owner) == 0 then
    return nil
end
-- fenced_draw.lua
local drawn = draw()
redis.call('del', lock)
redis.call('hset', lock, heir, '1')
redis.call('pexpire', lock, lease)
redis.call('set', latch, owner, 'px', lifetime)
return {1, drawn}
