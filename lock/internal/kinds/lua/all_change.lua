-- All kinds, change: the beginning of a change, at the line that names this file: a repeat answers as the first request did.
-- It uses the change's latch and last.
-- all_late.lua
local outcome = redis.call('get', latch)
if outcome then
    return tonumber(outcome)
end
