-- All kinds, repeat: the beginning of a release, at the line that names this file: a repeat answers as the first request did.
-- It uses the release's latch, lifetime and last, which is 0 for the first request of an owner that never has another hold.
local now = nil -- in ms since 1970; nil without a last moment
if last > 0 then
    local time = redis.call('time')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
    if now > last then
        return redis.status_reply('late ' .. string.format('%.0f', now))
    end
    lifetime = math.max(lifetime, last - now) -- an earlier request may come for as long as it is good
    local outcome = redis.call('get', latch)
    if outcome then
        return outcome ~= '-1' and tonumber(outcome) or nil
    end
end
