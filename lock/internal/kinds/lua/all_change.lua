-- All kinds, change: the beginning of a change, at the line that names this file: a repeat answers as the first request did.
-- It uses the change's latch and last. A change that is refused halfway leaves '' in the latch, for its repeat to run.
-- all_late.lua
local outcome = tonumber(redis.call('get', latch) or nil)
if outcome then
    return outcome
end
