-- Leader, withdraw: deletes what a leader has published, unless another leader has published since.
-- KEYS  1 record: a hash of owner, address, since and token
-- ARGV  1 owner
-- Returns 1 if it was deleted, else 0.
local record = KEYS[1]
local owner = ARGV[1]

if redis.call('hget', record, 'owner') == owner then
    return redis.call('del', record)
end
return 0
