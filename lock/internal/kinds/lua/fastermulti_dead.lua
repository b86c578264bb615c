-- Faster multi lock, dead: what stands behind fastermulti_line.lua, at the line that names this file: places of processes that have died.

-- endDead ends places that have long stood in the line and for which nobody listens, of a few that a moment chooses. What a process that has died waited
-- for may never be given back, so nobody else would find out.
local function endDead(line, channel, publish, counted)
    local long = string.format('%.0f', 1000 * (now - lineLife))
    local old = counted ~= '0' and redis.call('zcount', line, 0, long) or 0
    if old == 0 then
        return
    end
    local at, dead = redis.call('zcount', line, '-inf', '(0') + now % old, {}
    local list = redis.call('zrange', line, at, at + fewPlaces - 1, 'withscores')
    for i = 1, #list, 2 do
        local since = tonumber(list[i + 1]) -- in ms, of a place that has been next
        if list[i] ~= '*' and since <= tonumber(long) and (since > now or since <= now - lineLife) then
            table.insert(dead, list[i])
        end
    end
    endUnheard(line, dead, channel, publish)
end
