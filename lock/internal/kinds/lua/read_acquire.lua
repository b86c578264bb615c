-- Read lock, acquire: takes a hold beside other readers, or beneath the owner's own write lock.
-- KEYS  1 lock: a hash of "mode" to "read" or "write", of each reader to its hold count, and of the writer to its own
--       2 its channel  3 writers that wait: a sorted set of them by when their word ends, in ms
--       4 lease of the owner's first hold  5 latch: there once this very request has been undone
--       6.. leases of the owner's further holds, and behind them the line, if there is one
-- ARGV  1 lease in ms  2 owner  3 1 to let writers that wait go first  4 when this is too late, in ms since 1970
--       5 place in the line  6 what becomes of it: '' nothing; taken when refused ("join"); and when granted ended ("leave")
--       or moved to the end ("move")  7 what the server knows of listeners  8 publish command
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         nil for the first hold, the hold count as a status for a further one,
--         and otherwise the time in ms after which there is reason to look again (-1: none).
local lock, channel, writers, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local lease, owner, polite, last = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local place, stand, counted, publish = ARGV[5] or '', ARGV[6] or '', ARGV[7], ARGV[8]
local prefix = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
local line = KEYS[#KEYS] == 'lockwire_line:' .. prefix and KEYS[#KEYS]
-- The n-th hold of a reader has its lease in a key of its own: all clients compute from these how long the lock is kept.
local hold = prefix .. ':' .. owner .. ':rwlock_timeout:'

-- all_late.lua
local found, mode, holds = redis.call('exists', lock, latch, writers, line or latch), nil, nil -- one question in place of four
if found > 0 then
    mode, holds = unpack(redis.pcall('hmget', lock, 'mode', owner)) -- pcall: the latch goes before an error
end
if stand ~= 'move' and (found == 0 or found == 1 and mode == 'read' and not holds) then -- nobody waits, and no other has the lock for writing
    redis.call('hset', lock, 'mode', 'read', owner, '1')
    redis.call('set', hold .. '1', '1', 'px', lease)
    if found == 0 or redis.call('pttl', lock) < tonumber(lease) then
        redis.call('pexpire', lock, lease)
    end
    return nil
end
-- all_line.lua
local function lastWord() -- when it ends: in less than 20 s, unless it is from before the server's clock was set back
    local writer, ends = unpack(redis.call('zrevrange', writers, 0, 0, 'withscores'))
    local lasts = tonumber(ends or 0)
    return lasts <= now + 20000 and lasts or redis.call('zrem', writers, writer) and lastWord()
end
if redis.call('exists', latch) == 1 then
    return -1 -- undone: nobody waits for this any more
end
if not mode and redis.call('exists', lock) == 1 then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
end
if mode and mode ~= 'read' and redis.call('hexists', lock, owner .. ':write') == 0 then
    return waitInLine(line, place, stand, redis.call('pttl', lock))
end
local count, alive, turns = tonumber(holds or 0), false, nil
for n = 1, count do
    alive = alive or redis.call('exists', hold .. n) == 1
end
if not alive then
    count = 0 -- holds whose leases have all ended are none
end
if not alive and mode ~= 'write' then
    local left, available = nil, mode and 1 - share or 1
    left, turns = reservedFor(line, place, now, available - share, available)
    left = not turns.came and left or nil
    -- Who has been called comes in: a writer that has come meanwhile waits for the end of this turn.
    local ends = polite == '1' and not turns.came and lastWord() or 0
    if ends > now then
        left = ends - now
    end
    if left then
        left = waitInLine(line, place, stand, left)
        return line and mode and math.min(left, readLook) or left -- the writer that is next may let readers in meanwhile
    end
end
count = count + 1
redis.call('hset', lock, 'mode', mode or 'read', owner, count)
redis.call('set', hold .. count, '1', 'px', lease)
if redis.call('pttl', lock) < tonumber(lease) then
    redis.call('pexpire', lock, lease)
end
if turns then
    admitReader(line, place, stand, turns, not mode, channel, publish, counted)
else
    giveWay(line, place, stand)
end
return count > 1 and redis.status_reply(string.format('%d', count)) or nil
