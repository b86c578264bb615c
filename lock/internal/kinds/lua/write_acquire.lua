-- Write lock, acquire: takes the lock for an owner who finds it free or has it already.
-- KEYS  1 lock: a hash of "mode" to "read" or "write", of each reader to its hold count, and of the writer to its own
--       2 its channel  3 writers that wait: a sorted set of them by when their word ends, in ms
--       4 lease of the owner's first hold as a reader
--       5 latch: there once this very request has been undone
--       6.. leases of the owner's further holds as a reader, and behind them the line, if there is one
-- ARGV  1 lease in ms  2 owner, who with ":write" behind is another field than as a reader
--       3 for how long in ms readers are told that this writer waits, should it have to (0: not at all)
--       4 when this is too late, in ms since 1970
--       5 place in the line  6 what becomes of it: '' nothing; taken when refused ("join", as without this); and when granted
--       ended ("leave") or moved to the end ("move")
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         nil for the first hold, the hold count as a status for a further one, "upgrade" as a status if the owner
--         would wait for its own read lock, and otherwise when to ask again in ms: at the end of the others' lease or turn (-1: none).
local lock, writers, latch = KEYS[1], KEYS[3], KEYS[5]
local lease, owner, told, last = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local place, stand, reader = ARGV[5] or '', ARGV[6] or ARGV[5] and 'join' or '', string.sub(owner, 1, -7)
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local line = KEYS[#KEYS] == 'lockwire_line:' .. prefix and KEYS[#KEYS]

-- all_late.lua
if stand ~= 'move' and redis.call('exists', lock, latch, writers, line or latch) == 0 then -- one question in place of four
    redis.call('hset', lock, 'mode', 'write', owner, '1')
    redis.call('pexpire', lock, lease)
    return nil
end
-- all_line.lua
if redis.call('exists', latch) == 1 then
    return -1 -- undone: nobody waits for this any more
end
local mode, held, reads = unpack(redis.call('hmget', lock, 'mode', owner, reader))
if held then
    local count = redis.call('hincrby', lock, owner, 1)
    giveWay(line, place, stand)
    -- A further hold never shortens the lease of those it is nested in.
    if redis.call('pttl', lock) < tonumber(lease) then
        redis.call('pexpire', lock, lease)
    end
    return redis.status_reply(string.format('%d', count))
end
if not mode and redis.call('exists', lock) == 1 then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
local left, turns = nil, nil
if not mode or mode == 'read' and stand ~= '' then -- beside readers one who does not wait ends no turn of its process
    left, turns = reservedFor(line, place, now, 0, mode and 1 - share or 1)
end
if not mode and not left then
    redis.call('hset', lock, 'mode', 'write', owner, '1')
    redis.call('pexpire', lock, lease)
    if told > 0 then
        redis.call('zrem', writers, owner)
    end
    giveWay(line, place, stand)
    return nil
end
for n = 1, tonumber(reads or 0) do
    if redis.call('exists', prefix .. ':' .. reader .. ':rwlock_timeout:' .. n) == 1 then
        return redis.status_reply('upgrade')
    end
end
if told > 0 then
    redis.call('zadd', writers, now + told, owner)
    redis.call('pexpire', writers, told)
end
if mode then
    left = redis.call('pttl', lock)
    left = turns and turns.first and (left < 0 or left > turns.first) and turns.first or left
end
return waitInLine(line, place, stand, left, nil, mode == 'read' and turns or nil)
