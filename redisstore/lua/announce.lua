-- announce.lua announces a node for a limited time, and counts and ranks the announced nodes. If the node is new, it notifies the
-- others.
--
-- KEYS[1]  hg2:<namespace>:nodes, a sorted set of nodes by the millisecond at which they expire
-- ARGV[1]  the node: its ID, and after a space its name
-- ARGV[2]  lifetime of the announcement in milliseconds, 0 to sign off
-- ARGV[3]  the millisecond at which the node's previous announcement expires, 0 if there was none
-- ARGV[4]  channel on which the number of nodes is published when a node joins
-- reply    {nodes, time in microseconds, rank of this node by ID, from 1; 0 if it signed off,
--           1 if the previous announcement still existed, else 0}
local now = redis.call('TIME'); now = now[1] * 1000000 + now[2]
local ms = (now - now % 1000) / 1000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', ms))
local before = redis.call('ZSCORE', KEYS[1], ARGV[1])
local kept = tonumber(before or -1) == tonumber(ARGV[3])
if ARGV[2] == '0' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', ms + ARGV[2]), ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'NX')
  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
end
local nodes, rank = redis.call('ZRANGE', KEYS[1], 0, -1), 0
if ARGV[2] ~= '0' then
  rank = 1
  for _, id in ipairs(nodes) do
    if id < ARGV[1] then rank = rank + 1 end
  end
  if not before then redis.pcall('PUBLISH', ARGV[4], tostring(#nodes)) end -- else the others learn it with their next heartbeat
end
return {#nodes, now, rank, kept and 1 or 0}
