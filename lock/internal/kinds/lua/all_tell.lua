-- All kinds, tell: the end of a release, at the line that names this file: the place of its client goes, and others are told of what is free.
-- It uses the script's quiet: whether nobody is in the line, nor will be; message (false: there is nothing to tell), available and before, as
-- tellFree has them; place and stand, as giveWay has them; and result.
local told
if quiet then
    told = message and publish ~= '' and redis.pcall(publish, channel, message)
    if not line or type(told) ~= 'number' or told == 0 then
        return result
    end
end
-- all_line.lua
giveWay(line, place, stand)
if message then
    tellFree(line, channel, publish, counted, id, message, available, before, told)
end
return result
