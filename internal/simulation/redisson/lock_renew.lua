-- redisson lock, renew: prolongs locks that their owners still have.
-- KEYS  locks
-- ARGV  1 lease in ms  then the owner of each
-- Returns for each 1 or 0.
local outcomes = {}
for i, lock in ipairs(KEYS) do
    outcomes[i] = 0
    if redis.call('hexists', lock, ARGV[i + 1]) == 1 then
        redis.call('pexpire', lock, ARGV[1])
        outcomes[i] = 1
    end
end
return outcomes
