-- take.lua decides the charges of one request and records them, all or none. It translates headgate.Decide; what a caller
-- learns of each counter (remaining, retry-after, …) is computed in Go from the states returned here.
--
-- KEYS     one hash per subject, hg2:<namespace>:<subject>; in a Cluster all of one slot. Its fields, little endian:
--            counter (c6)        I4 expires, I7 time, I7 used; then I4 the count of the window before (sliding window), or I7
--                                what a token bucket was given back, if anything, and I7 when it was last credited, if
--                                it was; then, once something was held (and of a token bucket both of these),
--                                  I7 number of the last hold, I4 units and I3 number of holds, and for each time at which
--                                  some end, soonest first: I5 that time in 64ths of a second, I4 units, I3 holds
--                                or of a log its newest entries, each I7 time and I4 units, oldest first. If a log has
--                                more than a chunk of them: H number of chunks, then I7 time of the oldest entry, H number
--                                of all entries, and per chunk, oldest first, H its name, I7 time of its newest entry, I4
--                                units and H number of its entries; then the newest ones. Else H is 0.
--            counter 'h' I7      a hold by its number: I4 expires, I5 end in 64ths of a second, I4 units
--            counter 'l' H       a chunk of a log by its name: entries, of which the last ones count
-- ARGV[1]  59 bytes per charge:
--            c6  counter
--            B   index in KEYS
--            B   algorithm: 0 none (denies), 1 token bucket, 2 leaky bucket, 3 fixed window from the first charge,
--                4 fixed window on the clock, 5 fixed window of a calendar, 6 sliding window, 7 sliding log
--            B   kind: 0 enforce, 1 observe, 2 refund, 3 force or release, 4 credit
--            B   index of the first charge on the twin's counter, 0 none
--            B   index of the first charge on this counter
--            d   least: units that must fit; of a refund, its receipt's mark; of a release, the hold's number; else 0
--            d   most: units to take of what fits, 0 for a peek; of a refund or credit, units to give back, up to 8e9; of a
--                force or release, units to record
--            4d  1: capacity in millionths, p, q         of a refund: the receipt's time, p, q, the receipt's back
--                2: count, p, q, longest delay           of a refund: the receipt's time, p, q
--                3: count, window    4: count, window, offset    5: count, start, end of the window
--                6: count, window, tick, ticks per window    7: count, window
-- ARGV[2]  if any charge is on a log, holds, releases, records what was taken earlier, or refunds a token bucket: 2d per
--          charge, 0 for the others: how long to hold and the tick that the end is rounded up to; how long ago it was taken
--          and when the hold to release ends; or 0 and how much of a refund's mark are its own units
-- ARGV[3]  anything, if any charge is on a log
-- reply    B verdict: 1 admitted, 0 denied, 2 nothing done because a calendar window does not hold the time
--          d time
--          then for the first charge on each counter B 0 if it has no state, or an expired one; B 1 and its state as found;
--          B 2 and that of a token bucket which was given something back; or B 3, H its length, and one with more;
--          then the same of logs: B 1, I4 expires, I7 time, I7 used, H number, and so many entries: I7 time, I4 units, H
--          number of those that were merged into it, which is as of the newest. Merged are those that the charges cannot
--          tell apart;
--          then for each charge that releases a hold B 1 and that field's value, or B 0 if there is none
--
-- Times are microseconds. All numbers are whole, below 2^53; only numbers up to 2^52 are divided.
local now = redis.call('TIME'); now = now[1] * 1000000 + now[2]
local call, decode, encode, sub = redis.call, struct.unpack, struct.pack, string.sub
local keys, blob, spans = KEYS, ARGV[1], ARGV[2]
local n = #blob / 59
local single = #keys == n -- each key has one charge, in the same order

-- Tables that most calls fill up to four deep are made with room for that.
local fields, raw = {0, 0, 0, 0}, {0, 0, 0, 0}
if single then
  for i = 1, n do
    fields[i] = sub(blob, i * 59 - 58, i * 59 - 53)
    raw[i] = call('HGET', keys[i], fields[i])
  end
elseif #keys == 1 then
  for i = 1, n do fields[i] = sub(blob, i * 59 - 58, i * 59 - 53) end
  raw = call('HMGET', keys[1], unpack(fields, 1, n))
else
  for i = 1, n do
    fields[i] = sub(blob, i * 59 - 58, i * 59 - 53)
    raw[i] = call('HGET', keys[decode('B', blob, i * 59 - 52)], fields[i])
  end
end

-- What to store, by the first charge on a counter; and the latest expiry per key: of what was found, of what is stored.
local states, known, need = {false, false, false, false}, {0, 0, 0, 0}, {0, 0, 0, 0}
local fit, reply = {0, 0, 0, 0}, ''
local parts = {}            -- what comes before the reply, if it is long
local denier, again = 0, false
local side, read, released  -- of holds and chunks, by key and field: what to store, or false to delete; what was found
local crowd                 -- by key: how many holds were made, and how many a counter has
local cuts, mixed, dry      -- by the first charge on a log: times at which not to merge it in the reply

-- Functions for holds and chunks, and a table of those for logs. Most calls need none of them.
local stored, get, put, search, logs
if spans then
  side, read, released, crowd, cuts = {}, {}, '', {}, {}

  -- stored returns a field as it was before this call, or false.
  stored = function(key, field)
    local id = key .. ':' .. field
    if read[id] == nil then read[id] = call('HGET', keys[key], field) end
    return read[id]
  end

  -- get returns a hold or a chunk as this call has left it, or false.
  get = function(key, field)
    local value = side[key] and side[key][field]
    if value == nil then value = stored(key, field) end
    return value
  end

  put = function(key, field, value)
    if not side[key] then side[key] = {} end
    side[key][field] = value
  end

  -- search returns where the first record is that is not before t. Records have a size and are in order of a number in them.
  search = function(text, size, format, offset, t)
    local low, high = 0, #text / size
    while low < high do
      local middle = low + high
      middle = (middle - middle % 2) / 2
      if decode(format, text, middle * size + offset) < t then low = middle + 1 else high = middle end
    end
    return low * size + 1
  end
end
if ARGV[3] then logs = (function()
  -- logs.lua
end)() end

for pass = 1, 2 do
  for i = 1, n do
    local key, op, kind, twin, first, least, most, p1, p2, p3, p4 = decode('<BBBBBdddddd', blob, i * 59 - 52)
    local span, tick = 0, 0
    if spans then span, tick = decode('<dd', spans, i * 16 - 15) end
    local at = kind == 3 and now - span or now -- when the units are recorded
    local found = states[first] or raw[first]
    -- prev is the count of the window before, or what a bucket was given back.
    local expires, time, used, prev, credited, log = 0, 0, 0, 0, 0, nil
    local last, held, holds, ends = 0, 0, 0, ''
    if op == 0 then
      found = false
    elseif found then
      expires, time, used = decode('<I4I7I7', found)
      if pass == 1 and first == i and expires > (known[key] or 0) then known[key] = expires end
      if expires * 1000000 <= now then
        found, time, used, expires = false, 0, 0, 0
      elseif op ~= 7 then
        local from = 19
        if op == 6 then
          prev, from = decode('<I4', found, 19), 23
        elseif op == 1 and #found > 25 then
          prev, credited, from = decode('<I7I7', found, 19)
        elseif op == 1 and #found > 18 then
          prev, from = decode('<I7', found, 19), 26
        end
        if #found > from then
          last, held, holds = decode('<I7I4I3', found, from)
          ends = sub(found, from + 14)
        end
      end
    end
    if pass == 1 and first == i and op ~= 7 then
      if not found then
        reply = reply .. '\0'
      elseif last > 0 or credited > 0 then
        parts[#parts + 1], parts[#parts + 2], reply = reply .. encode('<BH', 3, #found), found, ''
      else
        reply = reply .. (op == 1 and #found > 18 and '\2' or '\1') .. found
      end
    end

    -- Bring the state to the present and see how much is available.
    local room, oldtime, oldused, oldexpires, start, stop = 0, time, used, expires, nil, nil
    local left, weight = 0, 0 -- of a sliding window: its ticks, and what the one before weighs
    if ends ~= '' then
      local from = 1
      while from < #ends do
        local t, units, count = decode('<I5I4I3', ends, from)
        if t * 15625 > now then break end
        from, held, holds = from + 12, held - units, holds - count
      end
      if from > 1 then ends = sub(ends, from) end
    end
    if op == 1 or op == 2 then
      local p, q = p2, p3
      local elapsed = at - time
      if elapsed > 0 then
        local rest = elapsed % q
        local part = rest * p
        local over = part % q
        local drained = (elapsed - rest) / q * p + (part - over) / q
        if drained >= used then
          used, time = 0, at
        else
          used, time = used - drained, at - (over - over % p) / p
        end
      end
      if op == 1 then
        room = p1 - used
        room = (room - room % 1000000) / 1000000
      else
        local rest = oldused % p
        local part = rest * q
        local wait = (oldused - rest) / p * q + (part - part % p) / p
        if part % p > 0 then wait = wait + 1 end
        if wait > 1e15 then wait = 1e15 end
        if oldtime + wait - now <= p4 then room = p1 end
      end
    elseif op == 3 then
      if expires == 0 or now >= time + p2 then time, used, expires = span < p2 and at or now, 0, 0 end
      room, stop = p1 - used, time + p2
    elseif op == 4 or op == 5 then
      if op == 4 then
        local since = now - p3 + p2
        start = since - since % p2 + p3 - p2
        stop = start + p2
      else
        start, stop = p2, p3
        if now < start or now >= stop then return encode('<Bd', 2, now) end
      end
      if expires == 0 or time < start then time, used, expires = now, 0, 0 end
      room = p1 - used
    elseif op == 6 then
      if expires == 0 or now >= time + 2 * p2 then
        time, used, prev, expires = at, 0, 0, 0
        if now >= at + p2 then time = now < at + 2 * p2 and at + p2 or now end
      elseif now >= time + p2 then
        time, used, prev = time + p2, 0, used
      end
      left = time + p2 - now + p3 - 1
      left = (left - left % p3) / p3
      if left > p4 then left = p4 end
      weight = prev * left + p4 - 1
      weight = (weight - weight % p4) / p4
      room = p1 - used - weight
    elseif op == 7 then
      if not cuts[first] then cuts[first] = {state = found} end
      log = logs.openLog(found, key, fields[i])
      if raw[first] and not found then logs.discard(log, raw[first]) end
      logs.cut(first, now - p2)
      used = used - logs.prune(log, p2)
      room = p1 - used
    end
    room = room - held

    -- Judge the charge; change the state if it is to be recorded.
    local changed, units, before = false, 0, false
    if kind == 4 then
      again = true
      if op == 1 or op == 2 then
        units = most * 1000000
        if units > used then units = used end
        if op == 1 and units > 0 then prev, credited = (prev + units) % 4503599627370496, now > time and now or time end
        used = used - units
        if used == 0 and now > time then time = now end
      elseif op == 7 then
        mixed = mixed or states[first]
        units = logs.credit(log, most, first)
        used = used - units
        if used > 0 then time = logs.newestTime(log) end
      else
        units = used < most and used or most
        used = used - units
        if op == 6 then
          local rest = weight - (most - units)
          if rest < 0 then rest = 0 end
          units = units + weight - rest
          rest = rest * p4
          rest = (rest - rest % left) / left
          if rest < prev then prev = rest end
        end
      end
      changed = units > 0
    elseif kind == 3 then
      again = true
      local record = tick <= now
      if least > 0 then
        local field = fields[i] .. 'h' .. encode('<I7', least)
        local hold = get(key, field)
        if pass == 1 then
          local value = stored(key, field)
          released = released .. (value and '\1' .. value or '\0')
        end
        if hold then
          put(key, field, false)
          local _, t, u = decode('<I4I5I4', hold)
          local from = search(ends, 12, '<I5', 1, t)
          if from < #ends then
            local t2, total, count = decode('<I5I4I3', ends, from)
            if t2 == t then
              local kept = count > 1 and encode('<I5I4I3', t, total - u, count - 1) or ''
              ends = sub(ends, 1, from - 1) .. kept .. sub(ends, from + 12)
              held, holds, changed, record = held - u, holds - 1, true, true
            end
          end
        end
      end
      before = op == 6 and span > 0 and at < time
      if (op == 3 or op == 7) and span >= p2 or start and at < start or before and at < time - p2 then record = false end
      if record then
        local counted = before and prev or used
        if op <= 2 then
          counted = used + 999999
          counted = (counted - counted % 1000000) / 1000000
        end
        units = 4000000000 - counted
        if units > most then units = most end
        if units < 0 then units = 0 end
      end
      if units > 0 then changed = true end
      if changed and oldexpires > expires then expires = oldexpires end
    elseif kind == 2 then
      again = true
      local back = 0
      if op == 1 then
        local elapsed = now - p1
        if elapsed < 0 then elapsed = 0 end
        local rest = elapsed % p3
        local part = rest * p2
        local gone = prev - p4
        if gone < 0 then gone = gone + 4503599627370496 end
        back = least - gone
        if p1 > credited and tick > back then back = tick end
        back = back - (elapsed - rest) / p3 * p2 - (part - part % p3) / p3
        if part % p3 > 0 then back = back - 1 end
        if back > most * 1000000 then back = most * 1000000 end
      elseif op == 2 then
        if oldused == least and oldtime == p1 then back = most * 1000000 end
      elseif op == 7 then
        if most > 0 then back = logs.refund(log, least, most, first) end
        if back > 0 and used > back then time = logs.newestTime(log) end
      elseif least == time or (start and least >= start) then
        back = most
      end
      if back > used then back = used end
      if back > 0 then
        used, changed = used - back, true
        if op == 1 then prev = (prev + back) % 4503599627370496 end
        if op <= 2 and used == 0 and now > time then time = now end
      end
    else
      local fits = op > 0 and room >= least and (span == 0 or holds < 100000)
      local record = fits and most > 0
      if pass == 1 then
        fit[i] = fits
        if kind == 1 then
          again = true
        elseif not fits then
          denier = (denier == 0 or denier == first) and first or -1
        end
        if op == 7 and not fits and least <= p1 then
          logs.cut(first, logs.fitsAt(log, used + least - p1))
        end
      else
        record = record and fit[i] and kind == 1 and twin == denier
      end
      if record then
        changed = true
        units = room < most and room or most
        if span > 0 then
          local t = now + span + tick - 1
          t = (t - t % tick) / 15625
          last = last < now and now or last + 1
          local from = search(ends, 12, '<I5', 1, t)
          local rest, total, count = from, units, 1
          if from < #ends then
            local t2, more, others = decode('<I5I4I3', ends, from)
            if t2 == t then rest, total, count = from + 12, more + units, others + 1 end
          end
          ends = sub(ends, 1, from - 1) .. encode('<I5I4I3', t, total, count) .. sub(ends, rest)
          held, holds = held + units, holds + 1
          crowd[key] = crowd[key] or {0, 0}
          crowd[key][1] = crowd[key][1] + 1
          if holds > crowd[key][2] then crowd[key][2] = holds end
          put(key, fields[i] .. 'h' .. encode('<I7', last), encode('<I4I5I4', (t + 63 - (t + 63) % 64) / 64, t, units))
          units = 0
        end
      end
    end
    if units > 0 and kind ~= 4 then
      if op <= 2 then
        used = used + units * 1000000
        local rest = used % p2
        local part = rest * p3
        local wait = (used - rest) / p2 * p3 + (part - part % p2) / p2
        if part % p2 > 0 then wait = wait + 1 end
        if wait > 1e15 then wait = 1e15 end
        stop = time + wait
      elseif before then
        prev = prev + units
        stop = time + p2
      elseif op == 6 then
        used = used + units
        stop = time + 2 * p2
      elseif op == 7 then
        if at == now and time > now then at = time end
        logs.add(log, units, at)
        time, used = logs.newestTime(log), used + units
        stop = time + p2
      else
        used = used + units
        if op ~= 3 and at > time then time = at end
      end
      stop = stop + 999999
      stop = (stop - stop % 1000000) / 1000000
      if stop > expires then expires = stop end
    end
    if changed then
      if ends ~= '' then
        local over = decode('<I5', ends, #ends - 11) + 63
        over = (over - over % 64) / 64
        if over > expires then expires = over end
      end
      local state, more = encode('<I4I7I7', expires, time, used), ''
      if op == 6 then
        more = encode('<I4', prev)
      elseif op == 7 then
        more = logs.closeLog(log)
      elseif op == 1 and (credited > 0 or last > 0) then
        more = encode('<I7I7', prev, credited)
      elseif op == 1 and prev > 0 then
        more = encode('<I7', prev)
      end
      states[first] = last > 0 and state .. more .. encode('<I7I4I3', last, held, holds) .. ends or state .. more
      if expires > (need[key] or 0) then need[key] = expires end
    end
  end
  if pass == 2 then
    if dry then states, side, need, denier = dry[1], dry[2], dry[3], 0 end
  elseif denier == 0 then
    if not mixed then break end
    -- If the request is denied elsewhere, the credit meets the log without what was charged before it: its cut is needed too.
    dry, denier = {states, side, need}, -1
    states, side, need = {}, {}, {}
  else
    -- Denied: keep nothing, unless a refund or a twin's observer counts all the same.
    states, need = {}, {}
    if spans then side = {} end
    if not again then break end
  end
end

local sets = {} -- fields and values by key, unless each key has one field
if spans or not single then
  single = false
  for i = 1, n do
    if states[i] then
      local k = #keys == 1 and 1 or decode('B', blob, i * 59 - 52)
      local args = sets[k]
      if args then
        args[#args + 1], args[#args + 2] = fields[i], states[i]
      else
        sets[k] = {fields[i], states[i]}
      end
    end
  end
end
if spans then
  for i = 1, n do
    if cuts[i] then reply = reply .. logs.merged(cuts[i].state, decode('B', blob, i * 59 - 52), fields[i], i) end
  end
  reply = reply .. released
  for k, changes in pairs(side) do
    local args, gone = sets[k], {}
    for field, value in pairs(changes) do
      if value then args[#args + 1], args[#args + 2] = field, value else gone[#gone + 1] = field end
    end
    if #gone > 0 then call('HDEL', keys[k], unpack(gone)) end
  end
end
-- TTLs are multiples of eight seconds, so that most calls need not move them on. If a field was found, the key has the TTL that
-- this one needed, or a longer one.
local swept, lastTTL, text = false, 0, ''
for k = 1, #keys do if (need[k] or 0) > 0 then
  local key, before, ttl, joined, size = keys[k], known[k] or 0, need[k] + 7, false, 1
  if single then
    call('HSET', key, fields[k], states[k])
  else
    call('HSET', key, unpack(sets[k]))
    size = #sets[k] / 2
  end
  ttl = ttl - ttl % 8
  if before + 7 - (before + 7) % 8 < ttl then
    if ttl ~= lastTTL then lastTTL, text = ttl, ttl .. '000' end -- writing a number takes as long as a command
    joined = before == 0 and call('PEXPIREAT', key, text, 'NX') == 0 -- a hash that has other counters
    if before > 0 or joined then call('PEXPIREAT', key, text, 'GT') end
  end
  -- Sweep fields that are not needed any more, now and then: when a hash takes up a new counter, when it has twice as many
  -- fields as holds, and at random.
  local sample, made, live, all = 0, 0, 0, 0
  if joined or now % 16 == 0 and k == 1 + (now - now % 16) / 16 % #keys then sample = 32 end
  if crowd and crowd[k] then made, live = crowd[k][1], crowd[k][2] end
  if sample + made > 0 then all = call('HLEN', key) end
  if all > 2 * live + 64 and 2 * made > sample then sample = 2 * made end
  if sample > 0 and not swept and all > size then
    swept = true
    local some, gone = call('HRANDFIELD', key, sample, 'WITHVALUES'), {}
    for i = 1, #some, 2 do
      local field, value = some[i], some[i + 1]
      if sub(field, 7, 7) == 'l' then value = call('HGET', key, sub(field, 1, 6)) or '\0\0\0\0' end
      if decode('<I4', value) * 1000000 <= now then gone[#gone + 1] = field end
    end
    if #gone > 0 then call('HDEL', key, unpack(gone)) end
  end
end end
return encode('<Bd', denier == 0 and 1 or 0, now) .. table.concat(parts) .. reply
