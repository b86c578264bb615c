-- All kinds, late: the beginning of a script with a last moment, at the line that names this file.
-- It uses the script's last: when the request is too late, in ms since 1970. Behind it, now is the server's time in ms, and time the
-- same as the server has it.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > last then
    return redis.status_reply('late ' .. string.format('%.0f', now))
end
