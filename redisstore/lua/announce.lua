-- announce.lua says that a node is there, for a while, and counts and ranks the nodes that have said so. Of one that was not there
-- before it notifies the others.
--
-- KEYS[1]  hg2:<namespace>:nodes, a sorted set of node ids by the millisecond until which they count
-- ARGV[1]  node id
-- ARGV[2]  milliseconds to count it, 0 to sign off
-- ARGV[3]  the millisecond until which its previous announcement was to count it, 0 if there was none
-- ARGV[4]  channel on which the number of nodes is published when one joins
-- reply    {nodes, time in microseconds, rank of this node among them by id, from 1; 0 if it signed off,
--           1 if the previous announcement was still there, else 0}
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
  if not before then redis.pcall('PUBLISH', ARGV[4], tostring(#nodes)) end -- the others count on without, until their next turn
end
return {#nodes, now, rank, kept and 1 or 0}
