-- All kinds, unheld: the answer of a release to an owner without a hold, at the line that names this file.
-- It uses the script's holds: nil or false for none; and of the release repeated, latch and lifetime.
if not holds then
    if repeated == '1' then
        redis.call('del', latch) -- a write that needs no memory: a full server refuses none behind it
        redis.call('set', latch, -1, 'px', lifetime)
    end
    return nil
end
