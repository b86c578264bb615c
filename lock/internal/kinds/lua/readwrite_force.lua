-- Read-write lock, force: frees the lock if readers have it, or if a writer has it, whoever they are. What the writer reads beneath it ends.
-- KEYS  1 lock  2 its channel  3 writers that wait  4 line, if there is one
-- ARGV  1 publish command  2 when this is too late, in ms since 1970  3 the mode: "read" or "write"  4 what the server knows of listeners
--       5 client's id
-- Returns late and the server's time as a status when it is too late, which changes nothing; otherwise
--         1 when the lock was taken in this mode, else 0. A key of another type or kind is an error and stays.
local lock, channel, line = KEYS[1], KEYS[2], KEYS[4]
local publish, last, mode = ARGV[1], tonumber(ARGV[2]), ARGV[3]

-- all_late.lua
-- all_line.lua
local held = redis.call('hget', lock, 'mode')
if not held and redis.call('exists', lock) == 1 then
    return redis.error_reply('WRONGTYPE The key holds a lock of another kind')
elseif held ~= mode then
    return 0
end
redis.call('del', lock) -- the leases of readers end by themselves
tellFree(line, channel, publish, ARGV[4], ARGV[5], mode == 'read' and '0' or '1', 1)
return 1
