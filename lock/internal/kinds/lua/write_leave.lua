-- Write lock, leave: has rest of the owner's write holds remain, at the line that names this file; without one the owner's reads keep the lock.
-- It uses the script's lock, prefix, owner and lease, and the owner as a reader, with so many reads. Behind it, left is the longest lease of the
-- reads: beneath a write lock there is no other reader.
local left = 0
for n = 1, tonumber(reads or 0) do
    left = math.max(left, redis.call('pttl', prefix .. ':' .. reader .. ':rwlock_timeout:' .. n))
end
-- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
if rest > 0 then
    redis.call('pexpire', lock, math.max(lease, left))
    redis.call('hset', lock, owner, rest)
elseif left > 0 then
    redis.call('pexpire', lock, left)
    redis.call('hset', lock, 'mode', 'read')
    if type(redis.pcall('hdel', lock, owner)) == 'table' then
        redis.call('hset', lock, 'mode', 'write') -- or else others would read beside the writer
        redis.call('hdel', lock, owner) -- refused again: the error of the script
    end
else
    redis.call('del', lock)
end
