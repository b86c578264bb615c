-- Fair lock, pass: passes over those who do not come for the lock though it is free and their turn.
-- KEYS  1 lock  2 its channel; a waiter's own has a colon and the waiter behind  3 queue  4 timeouts
--       5 idle: who heads the queue of the free lock, until when, and who ended it when that was first seen
-- ARGV  1 owner, who asks  2 publish command  3 1 if this server knows all who listen on a channel
-- Returns 1 when it is the turn of the owner, else 0.
local lock, channel, queue, timeouts, idle = unpack(KEYS)
local owner, publish, counts = unpack(ARGV)
local grace, limit, life = 1000, 15000, 30000 -- a waiter subscribes some time after it has stood in line
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- fair_head.lua
-- fair_deaf.lua
local function drop(first, last) -- and those behind that nobody listens for, as far as the last
    redis.call('zrem', timeouts, first)
    local following = head(owner) -- without the one that has no time any more
    if first == last or not following or following == owner or not deaf(following) then
        return following
    end
    return drop(following, last)
end

if redis.call('exists', lock) == 1 then
    return 0
end
local first = head(owner)
if not first or first == owner then
    return 1
end
local mark = first .. ' ' .. redis.call('zscore', timeouts, first) .. ' '
local seen, age = redis.call('get', idle) or '', life - redis.call('pttl', idle)
if string.sub(seen, 1, #mark) ~= mark or age < 0 then -- the server's clock has been set back, and the note is none for as long
    redis.call('set', idle, mark .. redis.call('lindex', queue, -1), 'px', life)
    return 0
end
if age >= limit or age >= grace and deaf(first) then
    local last = string.sub(seen, #mark + 1)
    last = redis.call('zscore', timeouts, last) and last or first -- who came after the last may not listen yet
    if not drop(first, last) then return 1 end
end
local following = redis.call('lindex', queue, 0)
if following ~= owner and age >= grace then
    redis.pcall(publish, channel .. ':' .. following, '0')
end
return following == owner and 1 or 0
