-- Fenced lock, draw: the next token, at the line that names this file.
-- It uses the script's token, life, time and now.

-- draw returns a token that grows over all holds. The server's time in it makes it do so even after the counter has been lost.
local function draw()
    local count = redis.call('incr', token)
    local drawn = life < 0 and count or math.max(count, time[1] * 1000000 + time[2])
    if life > 0 then -- a clock that comes to this end is past the token, wherever it has been meanwhile
        redis.call('set', token, string.format('%.0f', drawn), 'px', string.format('%.0f', math.floor(drawn / 1000) - now + life))
    else
        redis.call('set', token, string.format('%.0f', drawn)) -- and so without a time to live, whoever gave it one
    end
    return drawn
end
