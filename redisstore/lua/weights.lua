-- weights.lua replaces the weights of regions if no other server has, and returns them.
--
-- KEYS[1]  hg2:<namespace>:weights:<name>, a string
-- ARGV[1]  the string that is to be replaced; empty if there is none
-- ARGV[2]  the new string; the same as ARGV[1] to read only
-- ARGV[3]  TTL in seconds, renewed each day
-- reply    {the string now, time in microseconds}
local now = redis.call('TIME'); now = now[1] * 1000000 + now[2]
local current = redis.call('GET', KEYS[1]) or ''
if ARGV[1] ~= ARGV[2] and current == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2])
  current = ARGV[2]
end
if redis.call('TTL', KEYS[1]) < ARGV[3] - 86400 then redis.call('EXPIRE', KEYS[1], ARGV[3]) end
return {current, string.format('%.0f', now)}
