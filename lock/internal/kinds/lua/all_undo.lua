-- All kinds, undo: the beginning of an undo, at the line that names this file: only the first request with a latch does something.
-- It uses the undo's latch and last.
-- all_late.lua
local lasts = math.max(1, last - now, redis.call('pttl', latch))
if redis.call('pexpire', latch, lasts) == 1 then
    return 0 -- it has been undone
end
redis.call('set', latch, 0, 'px', lasts) -- after a write that needs no memory a server that has run out of that does not refuse others
