-- take.lua decides the charges of one request and records them, all or none. It implements headgate.Decide. It does not compute
-- results (remaining, retry-after, …): Go computes them from the states in the reply.
--
-- KEYS     one hash per subject, hg2:<namespace>:<subject>; in a Cluster all in one slot. Its fields, little endian:
--            counter (c6)        state of the counter: I4 expires, I7 time, I7 used. Then, by algorithm:
--                                sliding window: I4 count of the previous window
--                                token bucket:   I7 units given back, if any, and I7 time of the last credit, if there was one
--                                sliding log:    H number of chunks. If it is 0, all entries follow. Otherwise I7 time of the
--                                  oldest entry, H number of all entries, and per chunk, oldest first, H its name, I7 time of its
--                                  newest entry, I4 units and H number of its entries; then the newest entries, which are in no
--                                  chunk. An entry is I7 time and I4 units; entries are sorted, oldest first.
--                                concurrency:    for each holder, that with the latest operation first: c8 id, I7 until, I4 units, I7
--                                  sequence number. The time is a lower bound on when one of them expires
--                                Then, if the counter ever had a hold (a token bucket then always has both of its fields):
--                                  I7 number of the last hold, I4 units and I3 number of all holds, and for each time at which
--                                  holds end, soonest first: I5 that time in 64ths of a second, I4 units, I3 number of holds
--            counter 'h' I7      a hold, by its number: I4 expires, I5 end in 64ths of a second, I4 units
--            counter 'l' H       a chunk of a log, by its name: entries, of which only the last ones count
-- ARGV[1]  59 bytes per charge:
--            c6  counter
--            B   index in KEYS
--            B   algorithm: 0 none (denies), 1 token bucket, 2 leaky bucket, 3 fixed window from the first charge,
--                4 fixed window on the clock, 5 fixed window of a calendar, 6 sliding window from the first charge, 7 sliding log,
--                8 concurrency, 9 sliding window on the clock
--            B   kind: 0 enforce, 1 observe, 2 refund, 3 force or release, 4 credit; on a concurrency limit 2 release, 3 force, 5 set
--            B   index of the first charge on the twin's counter, 0 if there is none
--            B   index of the first charge on this counter
--            d   minOrMark: the units that must fit; for a refund the receipt's mark; for a release the hold's number; for a credit the
--                start of the window that it belongs to, or the last time at which a bucket may be credited; else 0
--            d   maxUnits: the maximum number of units to take, 0 for a peek; for a refund or credit the units to give back, up to
--                8e9; for a force or release the units to record
--            4d  p1 to p4, by algorithm:
--                1: capacity in millionths, p, q, absent for a refund: the receipt's time, p, q, the receipt's back
--                2: count, p, q, maximum delay           for a refund: the receipt's time, p, q
--                3: count, window    4, 9: count, window, offset, absent    5: count, start, end of the window, absent
--                6: count, window, tick, ticks per window    7: count, window
--                8: count, lease, sequence number, and c8 the holder's id
--                absent is how many units a counter that does not exist counts as used
-- ARGV[2]  present if a charge is on a log, holds, releases, records units taken earlier, or refunds a token bucket. 2d per
--          charge, 0 for other charges: duration of the hold and the tick that its end is rounded up to; age of the units and the
--          end of the hold to release; or 0 and the refund's own units in the mark
-- ARGV[3]  present, with any value, if a charge is on a log
-- reply    B verdict: 1 admitted, 0 denied, 2 nothing recorded because a calendar window does not contain the time
--          d time
--          for the first charge on each concurrency limit: B 0 as below; for a single charge B 1 and its state as found; B 3, H length and
--          its state as found; or, without holders that have expired, B 2, I4 expires, I7 time, I7 used, H number of holders that
--          no charge names, B number of those that charges name, and those
--          for the first charge on each other counter that is not a log: B 0 if it has no state or an expired one; B 1 and its state as
--          found; B 2 and the state of a token bucket with units given back; or B 3, H length and a state with more fields
--          for the first charge on each log: B 0 as above; or B 1, I4 expires, I7 time, I7 used, H number of entries, and for each
--          I7 time, I4 units, H number of stored entries that were merged into it, with the time of the newest. Entries are merged
--          unless a charge depends on their boundary
--          for each charge that releases a hold: B 1 and the value of the hold's field, or B 0 if it does not exist
--
-- Times are in microseconds. All numbers are integers below 2^53; only numbers up to 2^52 are divided.
local now = redis.call('TIME'); now = now[1] * 1000000 + now[2]
local call, decode, encode, sub = redis.call, struct.unpack, struct.pack, string.sub
local keys, blob, spans = KEYS, ARGV[1], ARGV[2]
local n = #blob / 59
local single = #keys == n -- each key has one charge, in the same order

-- Preallocate four elements, which is enough for most calls.
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

-- States to store, by the first charge on a counter; and the latest expiry per key: of the states found, of those to store.
local states, foundExpiry, newExpiry = {false, false, false, false}, {0, 0, 0, 0}, {0, 0, 0, 0}
local fitted, reply = {0, 0, 0, 0}, ''
local head, replyParts = ''      -- the reply before reply, and its parts if there are several charges
local denier = 0                 -- first charge on the counter that denies; -1 if several do, 0 if none does
local secondPass = false         -- if denied, some charges may have to be recorded nevertheless
local writes, reads              -- holds and chunks by key and field: values to store, or false to delete; values found
local holdField, holdValue       -- the hold in writes if there is only one charge, without the tables
local released = ''              -- the part of the reply for released holds
local newHolds = 0
local cuts                       -- by the first charge on a log: times at which not to merge entries in the reply
local mixedLog                   -- a credit follows another charge on the same log
local dryRun                     -- {states, writes, newExpiry, newHolds, denier} of the pass before one that only adds cuts

-- Functions for several holds and for chunks, and in logs for logs. Most calls need none of them.
local stored, get, put, logs
if spans and (n > 1 or ARGV[3]) then
  writes, reads, cuts = {}, {}, {}

  -- stored returns a field as it was before this call, or false.
  stored = function(key, field)
    local id = key .. ':' .. field
    if reads[id] == nil then reads[id] = call('HGET', keys[key], field) end
    return reads[id]
  end

  -- get returns a hold or a chunk including the changes of this call, or false.
  get = function(key, field)
    local value = writes[key] and writes[key][field]
    if value == nil then value = stored(key, field) end
    return value
  end

  -- put stores a hold or a chunk at the end of this call, or deletes it if value is false.
  put = function(key, field, value)
    if not writes[key] then writes[key] = {} end
    writes[key][field] = value
  end
end
if ARGV[3] then logs = (function()
  -- logs.lua
end)() end

for pass = 1, 3 do
  for i = 1, n do
    local key, op, kind, twin, first, minOrMark, maxUnits, p1, p2, p3, p4 = decode('<BBBBBdddddd', blob, i * 59 - 52)
    local span, tick = 0, 0
    if spans then span, tick = decode('<dd', spans, i * 16 - 15) end
    local at = kind == 3 and now - span or now -- when the units are recorded
    local offset, absent
    if op == 9 then -- the same as 6, except where a window begins
      op, offset, absent = 6, p3, p4
      p3 = p2 + 999999
      p3 = (p3 - p3 % 1000000) / 1000000
      p4 = p2 + p3 - 1
      p4 = (p4 - p4 % p3) / p3
    end
    local found = states[first] or raw[first]
    -- prev is the count of the previous window, or the units that a bucket was given back.
    local expires, time, used, prev, credited, log = 0, 0, 0, 0, 0, nil
    -- The ends of holds are in found, from endsAt. If they change, they are ends, newEnd and laterEnds.
    local lastHold, held, holds, endsAt, ends, newEnd, laterEnds = 0, 0, 0, 1, nil, '', ''
    if op == 0 then
      found = false
    elseif found then
      expires, time, used = decode('<I4I7I7', found)
      if pass == 1 and first == i and expires > (foundExpiry[key] or 0) then foundExpiry[key] = expires end
      if expires * 1000000 <= now then
        found, time, used, expires = false, 0, 0, 0
      elseif op < 7 then
        local from = 19
        if op == 6 then
          prev, from = decode('<I4', found, 19), 23
        elseif op == 1 and #found > 25 then
          prev, credited, from = decode('<I7I7', found, 19)
        elseif op == 1 and #found > 18 then
          prev, from = decode('<I7', found, 19), 26
        end
        if #found > from then
          lastHold, held, holds, endsAt = decode('<I7I4I3', found, from)
        end
      end
    end
    if pass == 1 and first == i and op < 7 then
      if not found then
        reply = reply .. '\0'
      elseif lastHold > 0 or credited > 0 then
        head = encode('<BH', 3, #found)
        if n > 1 then
          replyParts = replyParts or {}
          replyParts[#replyParts + 1], replyParts[#replyParts + 2], head, reply = reply .. head, found, '', ''
        else
          reply = found
        end
      else
        reply = reply .. (op == 1 and #found > 18 and '\2' or '\1') .. found
      end
    end

    -- Advance the state to the present and compute the available units.
    local available, oldtime, oldused, oldexpires, start, stop = 0, time, used, expires, nil, nil
    local left, weight = 0, 0 -- of a sliding window: ticks left, and the weighted count of the previous window
    while holds > 0 do
      local t, units, count = decode('<I5I4I3', found, endsAt)
      if t * 15625 > now then break end
      endsAt, held, holds = endsAt + 12, held - units, holds - count
    end
    if op == 1 or op == 2 then
      local p, q = p2, p3
      if expires == 0 and op == 1 and kind ~= 2 and p4 ~= 0 then
        time, used = now, p4 * 1000000
        local rest = used % p
        local part = rest * q
        local wait = (used - rest) / p * q + (part - part % p) / p
        if part % p > 0 then wait = wait + 1 end
        if wait > 1e15 then wait = 1e15 end
        expires = time + wait + 999999
        expires = (expires - expires % 1000000) / 1000000
      end
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
        available = p1 - used
        available = (available - available % 1000000) / 1000000
      else
        local rest = oldused % p
        local part = rest * q
        local wait = (oldused - rest) / p * q + (part - part % p) / p
        if part % p > 0 then wait = wait + 1 end
        if wait > 1e15 then wait = 1e15 end
        if oldtime + wait - now <= p4 then available = p1 end
      end
    elseif op == 3 then
      if expires == 0 or now >= time + p2 then time, used, expires = span < p2 and at or now, 0, 0 end
      available, stop = p1 - used, time + p2
    elseif op == 4 or op == 5 then
      if op == 4 then
        local since = now - p3 + p2
        start = since - since % p2 + p3 - p2
        stop = start + p2
      else
        start, stop = p2, p3
        if now < start or now >= stop then return encode('<Bd', 2, now) end
      end
      if expires == 0 and p4 ~= 0 then
        time, used, expires = now, p4, stop + 999999
        expires = (expires - expires % 1000000) / 1000000
      elseif expires == 0 or time < start then
        time, used, expires = now, 0, 0
      end
      available = p1 - used
    elseif op == 6 then
      if offset then
        local begin = now - offset + p2
        begin = begin - begin % p2 + offset - p2
        local into = (time - begin) % p2
        if expires ~= 0 and into ~= 0 then -- align a window that was counted under another alignment or length
          time = time - into + p2
          if time - p2 + into + expires * 1000000 <= 2 * time then time = time - p2 end
        end
        if expires == 0 and absent ~= 0 then
          used, expires = absent, begin + 2 * p2 + 999999
          expires = (expires - expires % 1000000) / 1000000
        elseif expires == 0 or time <= begin - 2 * p2 then
          used, prev, expires = 0, 0, 0
        elseif time <= begin - p2 then
          used, prev = 0, used
        end
        if time < begin then time = begin end
      elseif expires == 0 or now >= time + 2 * p2 then
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
      available = p1 - used - weight
    elseif op == 7 then
      if not cuts[first] then cuts[first] = {state = found} end
      log = logs.openLog(found, key, fields[i])
      if raw[first] and not found then logs.discard(log, raw[first]) end
      logs.cut(first, now - p2)
      used = used - logs.prune(log, p2)
      available = p1 - used
    end
    available = available - held

    -- Find the end of the hold to make or to release, in 64ths of a second: where it is in found or belongs, and how many units and
    -- holds end at that time.
    local ending, endAt, endUnits, endHolds, field, hold, holdUnits = 0, endsAt, 0, 0, nil, nil, 0
    if span > 0 and kind < 2 then
      ending = now + span + tick - 1
      ending = (ending - ending % tick) / 15625
    elseif kind == 3 and minOrMark > 0 then
      field = encode('<c6BI7', fields[i], 104, minOrMark)
      local value
      if writes then value, hold = stored(key, field), get(key, field) else value = call('HGET', keys[key], field); hold = value end
      if pass == 1 then released = released .. (value and '\1' .. value or '\0') end
      if hold then ending, holdUnits = decode('<I5I4', hold, 5) end
    end
    if ending > 0 and holds > 0 then
      local low, high = 0, (#found + 1 - endsAt) / 12
      while low < high do
        local middle = low + high
        middle = (middle - middle % 2) / 2
        if decode('<I5', found, endsAt + middle * 12) < ending then low = middle + 1 else high = middle end
      end
      endAt = endsAt + low * 12
      if endAt < #found then
        local t, units, count = decode('<I5I4I3', found, endAt)
        if t == ending then endUnits, endHolds = units, count end
      end
    end

    -- Decide the charge, and change the state if it is recorded.
    local changed, units, inPrevious, state = false, 0, false, nil
    if op == 8 then
      -- slots.lua
    elseif kind == 4 then
      secondPass = true
      if minOrMark ~= 0 and (op <= 2 and now > minOrMark or op > 2 and (minOrMark ~= (start or time) or start and time >= stop)) then
        maxUnits = 0 -- too late for a bucket, or not the window that the credit belongs to
      end
      if op == 1 or op == 2 then
        units = maxUnits * 1000000
        if units > used then units = used end
        if op == 1 and units > 0 then prev, credited = (prev + units) % 4503599627370496, now > time and now or time end
        used = used - units
        if used == 0 and now > time then time = now end
      elseif op == 7 then
        mixedLog = mixedLog or states[first]
        units = logs.credit(log, maxUnits, first)
        used = used - units
        if used > 0 then time = logs.newestTime(log) end
      else
        units = used < maxUnits and used or maxUnits
        used = used - units
        if op == 6 then
          local rest = weight - (maxUnits - units)
          if rest < 0 then rest = 0 end
          units = units + weight - rest
          rest = rest * p4
          rest = (rest - rest % left) / left
          if rest < prev then prev = rest end
        end
      end
      changed = units > 0
    elseif kind == 3 then
      secondPass = true
      local record = tick <= now
      if hold then
        if writes then put(key, field, false) else holdField, holdValue = field, false end
        if endHolds > 0 then
          if endHolds > 1 then newEnd = encode('<I5I4I3', ending, endUnits - holdUnits, endHolds - 1) end
          ends, laterEnds = sub(found, endsAt, endAt - 1), sub(found, endAt + 12)
          held, holds, changed, record = held - holdUnits, holds - 1, true, true
        end
      end
      inPrevious = op == 6 and span > 0 and at < time
      if (op == 3 or op == 7) and span >= p2 or start and at < start or inPrevious and at < time - p2 then record = false end
      if record then
        local counted = inPrevious and prev or used
        if op <= 2 then
          counted = used + 999999
          counted = (counted - counted % 1000000) / 1000000
        end
        units = 4000000000 - counted
        if units > maxUnits then units = maxUnits end
        if units < 0 then units = 0 end
      end
      if units > 0 then changed = true end
      if changed and oldexpires > expires then expires = oldexpires end
    elseif kind == 2 then
      secondPass = true
      local refunded = 0
      if op == 1 then
        local elapsed = now - p1
        if elapsed < 0 then elapsed = 0 end
        local rest = elapsed % p3
        local part = rest * p2
        local givenBack = prev - p4
        if givenBack < 0 then givenBack = givenBack + 4503599627370496 end
        refunded = minOrMark - givenBack
        if p1 > credited and tick > refunded then refunded = tick end
        refunded = refunded - (elapsed - rest) / p3 * p2 - (part - part % p3) / p3
        if part % p3 > 0 then refunded = refunded - 1 end
        if refunded > maxUnits * 1000000 then refunded = maxUnits * 1000000 end
      elseif op == 2 then
        if oldused == minOrMark and oldtime == p1 then refunded = maxUnits * 1000000 end
      elseif op == 7 then
        if maxUnits > 0 then refunded = logs.refund(log, minOrMark, maxUnits, first) end
        if refunded > 0 and used > refunded then time = logs.newestTime(log) end
      elseif minOrMark == time or (start and minOrMark >= start) then
        refunded = maxUnits
      end
      if refunded > used then refunded = used end
      if refunded > 0 then
        used, changed = used - refunded, true
        if op == 1 then prev = (prev + refunded) % 4503599627370496 end
        if op <= 2 and used == 0 and now > time then time = now end
      end
    else
      local fits = op > 0 and available >= minOrMark and (span == 0 or holds < 100000)
      local record = fits and maxUnits > 0
      if pass == 1 then
        fitted[i] = fits
        if kind == 1 then
          secondPass = true
        elseif not fits then
          denier = (denier == 0 or denier == first) and first or -1
        end
        if op == 7 and not fits and minOrMark <= p1 then
          logs.cut(first, logs.fitsAt(log, used + minOrMark - p1))
        end
      else
        record = record and fitted[i] and kind == 1 and twin == denier
      end
      if record then
        changed = true
        units = available < maxUnits and available or maxUnits
        if span > 0 then
          lastHold = lastHold < now and now or lastHold + 1
          newEnd = encode('<I5I4I3', ending, endUnits + units, endHolds + 1)
          if holds > 0 then
            ends, laterEnds = sub(found, endsAt, endAt - 1), sub(found, endHolds > 0 and endAt + 12 or endAt)
          end
          held, holds, newHolds = held + units, holds + 1, newHolds + 1
          field = encode('<c6BI7', fields[i], 104, lastHold)
          hold = encode('<I4I5I4', (ending + 63 - (ending + 63) % 64) / 64, ending, units)
          if writes then put(key, field, hold) else holdField, holdValue = field, hold end
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
      elseif inPrevious then
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
      if holds > 0 then
        ends = ends or newEnd == '' and sub(found, endsAt) or ''
        local last = laterEnds ~= '' and laterEnds or newEnd ~= '' and newEnd or ends
        local over = decode('<I5', last, #last - 11) + 63
        over = (over - over % 64) / 64
        if over > expires then expires = over end
      end
      if op == 8 then -- it has its state
      elseif op == 7 then
        state = encode('<I4I7I7', expires, time, used) .. logs.closeLog(log)
      elseif lastHold > 0 then
        if op == 1 then
          state = encode('<I4I7I7I7I7I7I4I3', expires, time, used, prev, credited, lastHold, held, holds)
        elseif op == 6 then
          state = encode('<I4I7I7I4I7I4I3', expires, time, used, prev, lastHold, held, holds)
        else
          state = encode('<I4I7I7I7I4I3', expires, time, used, lastHold, held, holds)
        end
        state = state .. (ends or '') .. newEnd .. laterEnds
      elseif op == 6 then
        state = encode('<I4I7I7I4', expires, time, used, prev)
      elseif op == 1 and credited > 0 then
        state = encode('<I4I7I7I7I7', expires, time, used, prev, credited)
      elseif op == 1 and prev > 0 then
        state = encode('<I4I7I7I7', expires, time, used, prev)
      else
        state = encode('<I4I7I7', expires, time, used)
      end
      states[first] = state
      if expires > (newExpiry[key] or 0) then newExpiry[key] = expires end
    end
  end
  if dryRun then
    states, writes, newExpiry, newHolds, denier = dryRun[1], dryRun[2], dryRun[3], dryRun[4], dryRun[5]
    break
  elseif denier == 0 or pass == 2 then
    if not mixedLog then break end
    -- If another group denies the request, too, the credit applies to the log without the charges and observers before it. The next
    -- pass adds the cut for that case.
    dryRun, denier = {states, writes, newExpiry, newHolds, denier}, -1
    states, writes, newExpiry = {}, {}, {}
  else
    -- Denied: record nothing, except refunds, credits, forced charges, releases and an observer whose twin alone denied.
    states, newExpiry, newHolds = {}, {}, 0
    if writes then writes = {} end
    if not secondPass then break end
  end
end

local sets = {} -- fields and values to store, by key; unused if each key has one field
if writes or not single then
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
if writes then
  for i = 1, n do
    if cuts[i] then reply = reply .. logs.merged(cuts[i].state, decode('B', blob, i * 59 - 52), fields[i], i) end
  end
  for k, changes in pairs(writes) do
    local args, deleted = sets[k], {}
    for field, value in pairs(changes) do
      if value then args[#args + 1], args[#args + 2] = field, value else deleted[#deleted + 1] = field end
    end
    if #deleted > 0 then call('HDEL', keys[k], unpack(deleted)) end
  end
elseif holdValue == false then
  call('HDEL', keys[1], holdField)
end
-- TTLs are multiples of eight seconds, so that most calls need not extend them. If a field was found, the TTL of its key is
-- at least as long as that field needs.
local swept, lastTTL, text = false, 0, ''
for k = 1, #keys do if (newExpiry[k] or 0) > 0 then
  local key, before, ttl, addedField, size = keys[k], foundExpiry[k] or 0, newExpiry[k] + 7, false, 1
  if holdValue then
    call('HSET', key, fields[k], states[k], holdField, holdValue)
    size = 2
  elseif single then
    call('HSET', key, fields[k], states[k])
  else
    call('HSET', key, unpack(sets[k]))
    size = #sets[k] / 2
  end
  ttl = ttl - ttl % 8
  if before + 7 - (before + 7) % 8 < ttl then
    if ttl ~= lastTTL then lastTTL, text = ttl, ttl .. '000' end -- formatting a number takes as long as a command
    addedField = before == 0 and call('PEXPIREAT', key, text, 'NX') == 0 -- the hash has other counters
    if before > 0 or addedField then call('PEXPIREAT', key, text, 'GT') end
  end
  -- Delete expired fields from a random sample, and from a larger one if it had any: when the hash gets a new counter, in one of
  -- 16 calls, and more often if a call makes several holds.
  local turn = now % 16
  local sweep = addedField or (turn == 0 or turn < newHolds) and k == 1 + (now - turn) / 16 % #keys
  if sweep and not swept and call('HLEN', key) > size then
    swept = true
    for round = 1, 2 do
      local sampled, expired = call('HRANDFIELD', key, round == 1 and 4 or 32 + 2 * newHolds, 'WITHVALUES'), {}
      for i = 1, #sampled, 2 do
        local field, value = sampled[i], sampled[i + 1]
        if sub(field, 7, 7) == 'l' then value = call('HGET', key, sub(field, 1, 6)) or '\0\0\0\0' end
        if decode('<I4', value) * 1000000 <= now then expired[#expired + 1] = field end
      end
      if #expired == 0 then break end
      call('HDEL', key, unpack(expired))
    end
  end
end end
return encode('<Bd', denier == 0 and 1 or 0, now) .. (replyParts and table.concat(replyParts) or head) .. reply .. released
