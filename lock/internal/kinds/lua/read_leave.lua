-- Read lock, leave: what stands in the scripts that take holds of a reader away, at the line that names this file.
-- It uses their lock, owner and lease, and what the names of leases begin with: of all readers (prefix), of this one (hold).
local enoughReaders = 32 -- fields of the lock from which on a reader who stays for nearly as long as the longest is as good

-- remaining returns for how many ms readers have the lock, without the one who had it for so many ms.
local function remaining(gone)
    local kept, left = redis.call('pttl', lock), 0
    local many = kept > 0 and redis.call('hlen', lock) > enoughReaders
    local enough = many and kept - kept / 4 or math.huge
    if many and gone < enough then
        return kept
    end
    for look = many and 1 or 2, 2 do
        local fields = look == 1 and redis.call('hscan', lock, 0, 'count', enoughReaders)[2] or redis.call('hgetall', lock)
        for i = 1, #fields, 2 do
            for n = 1, left < enough and tonumber(fields[i + 1]) or 0 do
                local lasts = redis.pcall('pttl', prefix .. ':' .. fields[i] .. ':rwlock_timeout:' .. n)
                if type(lasts) ~= 'number' then
                    return kept -- it is not to be known
                end
                left = math.max(left, lasts)
            end
        end
        if left >= enough then
            return math.max(kept, left)
        end
    end
    return left
end

-- leave has rest of the owner's count holds remain, and reports whether the lock is free: this was the last of all readers.
local function leave(count, rest)
    local gone, alive = 0, 0
    for n = 1, rest do
        alive = alive + redis.call('pexpire', hold .. n, lease) -- whose lease was whose, the server does not know
    end
    if rest > 0 and alive == 0 then
        redis.call('set', hold .. rest, 1, 'px', lease)
    end
    -- First what frees memory: a server that has run out of it refuses all else, but not after a script's first write.
    for n = rest + 1, count do
        gone = math.max(gone, redis.call('pttl', hold .. n))
        redis.call('del', hold .. n)
    end
    if rest > 0 then
        redis.call('pexpire', lock, math.max(tonumber(lease), redis.call('pttl', lock)))
    end
    local left = redis.call('hget', lock, 'mode') == 'read' and remaining(gone)
    -- Behind whatever the user may lack the right to: otherwise a repeat, or an earlier request, would end another hold.
    if rest > 0 then
        redis.call('hset', lock, owner, rest)
    else
        redis.call('hdel', lock, owner)
    end
    if left and left > 0 then
        redis.call('pexpire', lock, left)
    elseif left == 0 then
        redis.call('del', lock)
    end -- beneath its owner's write lock, whose lease the server does not know, nothing is shortened
    return left == 0
end
