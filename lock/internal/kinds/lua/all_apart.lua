-- All kinds, apart: what stands in front of a script when a server refuses its keys while their slot migrates.
-- A server does so when it lacks one of them, even if that is nowhere. So the lock alone is named, and the others are given: the
-- script runs if each of them is here or nowhere. A script that can do without some of them runs also if one of these is elsewhere, and
-- then touches none of them.
-- KEYS  1 lock
-- ARGV  1 server's time in ms after which it is too late  2 1 if it may run where the slot is leaving: there no key can be made
--       3 owner whose hold count has to be  4 at least so much ('': no matter)  5 number of other keys  6.. each of them, and 1 behind it if it
--       was there a moment ago, 2 more if it is none of the script's KEYS, and 4 more if the script can do without it  then the
--       ARGV of the script
-- Returns what the script does; 0 or 1 as a release would whose outcome is there already; the error TRYAGAIN for: not now.
local server, given, time = redis, ARGV, redis.call('time')
local owner, expected, others = given[3], tonumber(given[4]), tonumber(given[5])
local latches = 'redisson_unlock_latch:' -- go with their request: without one the script is never run twice
local nothing = {
    ['exists'] = 0, del = 0, hexists = 0, hdel = 0, hlen = 0, zrem = 0, zcard = 0, zremrangebyscore = 0, lrem = 0, llen = 0,
    ['pexpire'] = 0, expire = 0, zcount = 0, zrank = false, lpos = false, pttl = -2, get = false, hget = false, zscore = false, lindex = false, lpop = false, type = {ok = 'none'},
    ['lrange'] = {}, zrange = {}, zrevrange = {}, zrangebyscore = {}, hgetall = {}, hmget = {false, false},
}
local function away(reply) -- of a key that this server does not have, and may not make
    return type(reply) == 'table' and reply.err and string.find(reply.err, 'non local key', 1, true)
end
local function later(why)
    return server.error_reply('TRYAGAIN ' .. why)
end

if time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(given[1]) then
    return later('it is too late for this request')
end
local tag = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
if given[2] ~= '1' and away(server.pcall('exists', tag .. ':nowhere')) then
    return later('the slot is leaving')
end
local KEYS, ARGV, spared, without = {KEYS[1]}, {unpack(given, 6 + 2 * others)}, {}, false
for i = 6, 4 + 2 * others, 2 do
    local key, note = given[i], tonumber(given[i + 1])
    if note % 4 < 2 then table.insert(KEYS, key) end
    spared[key] = note >= 4
    if note % 2 == 1 and server.pcall('exists', key) ~= 1 then
        if note < 4 then return later('the keys are on two servers') end
        without = true
    end
end
local count = expected and tonumber(server.call('hget', KEYS[1], owner) or 0)
if expected and count < expected and count > 0 then
    return count == expected - 1 and 0 or nil
end
local redis = {status_reply = server.status_reply, error_reply = server.error_reply}
redis.pcall = function(name, ...)
    if (name == 'del' or name == 'exists') and select('#', ...) > 1 then
        local count = 0
        for _, key in ipairs({...}) do
            local reply = redis.pcall(name, key)
            if type(reply) == 'table' then return reply end
            count = count + reply
        end
        return count
    end
    if name == 'mget' then
        local values = {}
        for i, key in ipairs({...}) do
            local value = redis.pcall('get', key)
            values[i] = type(value) == 'string' and value
        end
        return values
    end
    local key = ...
    if without and spared[key] then -- all of them, as some may refer to others; leases of readers last as long as the lock
        if name == 'pttl' then return server.call('pttl', KEYS[1]) end
        return name == 'set' and {ok = 'OK'} or nothing[name]
    end
    local reply = server.pcall(name, ...)
    if not away(reply) then return reply end
    if name == 'set' and string.sub(key, 1, #latches) == latches then return {ok = 'OK'} end
    if nothing[name] == nil then return reply end
    return nothing[name]
end
redis.call = function(name, ...)
    local reply = redis.pcall(name, ...)
    return type(reply) == 'table' and reply.err and server.call(name, ...) or reply
end
