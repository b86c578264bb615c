-- Fair lock, tell: who heads the queue is told that the lock is free, or will be soon, at the line that names this file.
-- It uses what fair_head.lua and fair_deaf.lua use, and the script's channel, publish, and counts: 1 if this server knows all who listen on a channel. Then it
-- tells those behind who does not, too, until one does. The head may be a client of Redisson's that listens at a replica, so it is told in any case.
local function tell() -- without a queue, or a right to publish, the lock is free all the same
    if redis.call('exists', queue) == 0 then return end
    local time = redis.call('time')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
    local ok, first = pcall(head)
    local waiter, place = ok and first, 0
    while waiter do
        place = place + 1
        local alone = publish == 'PUBLISH' and deaf(waiter) -- a pattern does not wait
        local unheard = alone and place > 1 or redis.pcall(publish, channel .. ':' .. waiter, '0') == 0 or alone
        waiter = unheard and counts == '1' and place < 100 and redis.call('lindex', queue, place)
    end
end
