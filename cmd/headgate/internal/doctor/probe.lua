-- Calls each command of the scripts that nodes run, and returns those that failed, with their errors.
--
-- KEYS[1]  a key that does not exist, and does not exist afterwards
-- ARGV[1]  a channel without subscribers
local key, failed = KEYS[1], {}

local function try(name, ...)
  local reply = redis.pcall(name, ...)
  local ok = type(reply) ~= 'table' or not reply.err
  if not ok then failed[#failed + 1] = name .. ' ' .. reply.err end
  return ok
end

try('TIME')
try('HGET', key, 'f')
try('HMGET', key, 'f')
try('HLEN', key)
try('HRANDFIELD', key, 1, 'WITHVALUES')
try('PEXPIREAT', key, '1', 'NX')
try('PEXPIRE', key, '1', 'NX')
try('ZADD', key, 'XX', '1', 'm')
try('ZREM', key, 'm')
try('ZREMRANGEBYSCORE', key, '-inf', '0')
try('ZSCORE', key, 'm')
try('ZRANGE', key, 0, -1)
try('PUBLISH', ARGV[1], '')
-- Write only what can be removed again.
if try('HDEL', key, 'f') and try('HSET', key, 'f', 'v') then redis.call('HDEL', key, 'f') end
return failed
