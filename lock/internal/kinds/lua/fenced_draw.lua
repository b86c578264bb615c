-- Fenced lock, draw: the next token, at the line that names this file.
-- It uses the script's token, life, time and now.

-- draw returns a token that grows over all holds, as text. The server's time in it makes it do so even after the counter has been lost.
local function draw()
    local count = redis.call('incr', token)
    local drawn = life < 0 and count or math.max(count, time[1] * 1000000 + time[2])
    -- Lua's numbers are exact up to 2^53, and somebody may have set the counter to more.
    local text = count < 9007199254740992 and string.format('%.0f', drawn) or redis.call('get', token)
    if life > 0 then -- a clock that comes to this end is past the token, wherever it has been meanwhile
        redis.call('set', token, text, 'px', string.format('%.0f', math.floor(drawn / 1000) - now + life))
    else
        redis.call('set', token, text) -- and so without a time to live, whoever gave it one
    end
    return text
end
