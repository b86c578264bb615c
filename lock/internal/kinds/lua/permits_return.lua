-- Permit semaphore, return: permits go back to the free ones, at the line that names this file.
-- It uses the script's semaphore and permits.
local taken = {} -- of the permits that go back the end of each lease, followed by the id

-- remove takes a permit, whose lease ends at a time, from its holder, if it has one.
local function remove(id, ends)
    if redis.call('zrem', permits, id) == 1 then
        table.insert(taken, ends)
        table.insert(taken, id)
    end
end

-- restock adds the removed permits to the free ones, and returns how many are free then.
local function restock()
    local free = redis.pcall('incrby', semaphore, #taken / 2)
    if type(free) == 'table' then
        redis.call('zadd', permits, unpack(taken)) -- else nobody would have them, and they would never come back
        redis.call('incrby', semaphore, #taken / 2) -- refused again: the error of the script
    end
    return free
end
