-- Fair lock, head: who heads the queue, at the line that names this file.
-- It uses the script's queue, timeouts, and now in ms.

-- head drops those whose time is up, and those who have none, as far as except.
local function head(except)
    local first = redis.call('lindex', queue, 0)
    if not first or first == except or tonumber(redis.call('zscore', timeouts, first) or 0) > now then
        return first
    end
    redis.call('lpop', queue)
    redis.call('zrem', timeouts, first)
    return head(except)
end
