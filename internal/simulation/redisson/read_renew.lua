-- redisson read lock, renew: prolongs the holds of a client's readers.
-- KEYS  for each lock: 1 lock  2 prefix of the keys of its holds
-- ARGV  1 lease in ms  then for each lock the number of its owners, and the owners
-- Returns for each lock 1 or 0.
local lease, at, outcomes = ARGV[1], 2, {}
for i = 1, #KEYS, 2 do
    local lock, prefix, alive = KEYS[i], KEYS[i + 1], 0
    for n = at + 1, at + tonumber(ARGV[at]) do
        local count = redis.call('hget', lock, ARGV[n])
        for hold = 1, tonumber(count or 0) do
            redis.call('pexpire', prefix .. ':' .. ARGV[n] .. ':rwlock_timeout:' .. hold, lease)
            alive = 1
        end
    end
    at = at + tonumber(ARGV[at]) + 1
    if alive == 1 then
        redis.call('pexpire', lock, lease)
    end
    outcomes[#outcomes + 1] = alive
end
return outcomes
