-- All kinds, publish: whether the user may publish on a lock's channel. Nothing is published.
-- KEYS  1 lock  2 its channel
-- ARGV  1 publish command
-- Returns 1 if so, 0 if not, nil if the server cannot tell, as those before Redis 7.0.
local channel, publish = KEYS[2], ARGV[1]

if not redis.acl_check_cmd then
    return nil
end
return redis.acl_check_cmd(publish, channel, '0') and 1 or 0
