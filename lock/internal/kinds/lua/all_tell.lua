-- All kinds, tell: the end of a release, at the line that names this file: the place of its client goes, and others are told of what is free.
-- It uses the script's quiet: whether nobody is in the line, nor will be; message (false: there is nothing to tell), available and before, as
-- tellFree has them; stand, what becomes of the place; result; and heard, which of ARGV says what the server knows of listeners: behind it are
-- the client's id and its place. The result for a free lock is 4 in place of 1 if clients listen that know nothing of the line.
local told
if quiet then
    told = message and publish ~= '' and redis.pcall(publish, channel, message)
    if told == 0 or not line or type(told) ~= 'number' then
        return result
    end
end
-- all_line.lua
giveWay(line, ARGV[heard + 2], stand)
if message and tellFree(line, channel, publish, ARGV[heard], ARGV[heard + 1], message, available, before, told) == visitorsToo and not before then
    return visitorsToo
end
return result
