-- take.lua decides the charges of one request and records them, all or none. It is the translation of headgate.Decide;
-- what the caller is told of each counter (remaining, retry-after, …) is worked out in Go from the states returned here.
--
-- KEYS     one hash per subject, hg1:<namespace>:<subject>; in a Cluster all of one slot. A field is a counter, its value
--          its state: I7 time, I7 used, I4 expires, then I4 the previous count of a sliding window, I7 what a token bucket
--          was given back if anything, or the entries of a log, each I7 time and I4 units. Behind these come the holds
--          of any but a leaky bucket and a log: I7 the time at which it runs out, soonest first, and I4 units; a token
--          bucket with holds always says what it was given back. All little endian.
-- ARGV[1]  59 bytes per charge:
--            c6  field
--            B   index in KEYS
--            B   algorithm: 0 none (refuses), 1 token bucket, 2 leaky bucket, 3 fixed window from the first charge,
--                4 fixed window on the clock, 5 fixed window of a calendar, 6 sliding window, 7 sliding log
--            B   kind: 0 enforce, 1 observe, 2 refund, 3 force or release, 4 credit
--            B   index of the first charge on the twin's counter, 0 none
--            B   index of the first charge on this counter
--            d   least: units that must fit; of a refund or release, the receipt's mark, 0 if there is none
--            d   most: units to take of what fits, 0 for a peek; of a refund or credit, units to give back, up to 8e9; of a
--                force or release, units to record
--            4d  1: capacity in millionths, p, q         of a refund: the receipt's time, p, q, the receipt's back
--                2: count, p, q, longest delay           of a refund: the receipt's time, p, q
--                3: count, window    4: count, window, offset    5: count, start, end of the window
--                6: count, window, tick, ticks per window    7: count, window, units asked for in all (0: unknown)
-- ARGV[2]  if any charge is a hold, or records what was taken earlier: d per charge, how long it is held, or how long ago it
--          was taken; 0 for the others
-- reply    B verdict: 1 admitted, 0 denied, 2 nothing done because a calendar window does not hold the time
--          d time
--          then for the first charge on each counter B 0 if it has no state, or it has lapsed; B 1 and its state as
--          found; B 2 and that of a token bucket which was given something back; or B 3, H its length, and one with
--          holds. Of a log: I7 time, I7 used, I4 expires, H number, and that many entries: of those not lapsed, the ones
--          that decide when the units asked for fit; or all, if that is unknown
--
-- Times are microseconds. All numbers are whole, below 2^53; only numbers up to 2^52 are divided.
local now = redis.call('TIME'); now = now[1] * 1000000 + now[2]
local call, decode, encode, sub = redis.call, struct.unpack, struct.pack, string.sub
local keys, blob, spans = KEYS, ARGV[1], ARGV[2]
local n = #blob / 59

local fields, raw = {}, nil
for i = 1, n do fields[i] = sub(blob, i * 59 - 58, i * 59 - 53) end
if #keys == 1 then
  raw = call('HMGET', keys[1], unpack(fields))
else
  raw = {}
  for i = 1, n do raw[i] = call('HGET', keys[decode('B', blob, i * 59 - 52)], fields[i]) end
end

local states = {}           -- what to store, by the first charge on a counter
local known, need = {}, {}  -- latest expiry per key: of what was found, of what is stored
local fit = {}
local reply = ''
local denier, again = 0, false

for pass = 1, 2 do
  for i = 1, n do
    local key, op, kind, twin, first, least, most, p1, p2, p3, p4 = decode('<BBBBBdddddd', blob, i * 59 - 52)
    local span = spans and decode('<d', spans, i * 8 - 7) or 0
    local at = kind == 3 and now - span or now -- when the units are recorded
    local found = states[first] or raw[first]
    -- prev is the count of the window before, or what a bucket was given back.
    local time, used, expires, prev, entries, holds = 0, 0, 0, 0, '', ''
    if op == 0 then
      found = false
    elseif found then
      time, used, expires = decode('<I7I7I4', found)
      if expires * 1000000 <= now then
        found, time, used, expires = false, 0, 0, 0
      else
        if op == 6 then
          prev = decode('<I4', found, 19)
          if #found > 22 then holds = sub(found, 23) end
        elseif op == 7 then
          entries = sub(found, 19)
        elseif #found > 18 then
          if op == 1 then
            prev = decode('<I7', found, 19)
            holds = sub(found, 26)
          else
            holds = sub(found, 19)
          end
        end
        if not states[first] and expires > (known[key] or 0) then known[key] = expires end
      end
    end

    -- Bring the state to the present and see how much fits.
    local room, oldtime, oldused, oldexpires, all, start, stop = 0, time, used, expires, entries, nil, nil
    local held, allholds = 0, holds
    local left, weight = 0, 0 -- of a sliding window: its ticks, and what the one before weighs
    if holds ~= '' then
      local from = 1
      for at = 1, #holds, 11 do
        local t, units = decode('<I7I4', holds, at)
        if t <= now then from = at + 11 else held = held + units end
      end
      holds = sub(holds, from)
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
      local at = 1
      while at < #entries do
        local t, units = decode('<I7I4', entries, at)
        if t + p2 > now then break end
        used, at = used - units, at + 11
      end
      if at > 1 then entries = sub(entries, at) end
      room = p1 - used
    end
    room = room - held

    if pass == 1 and first == i then
      if not found then
        reply = reply .. '\0'
      elseif op == 7 and p3 == 0 then
        reply = reply .. encode('<BI7I7I4H', 1, time, oldused, expires, #all / 11) .. all
      elseif op == 7 then
        local over, at = used + p3 - p1, 1
        if over > used then over = used end
        while over > 0 do
          local _, units = decode('<I7I4', entries, at)
          over, at = over - units, at + 11
        end
        reply = reply .. encode('<BI7I7I4H', 1, time, used, expires, (at - 1) / 11) .. sub(entries, 1, at - 1)
      elseif allholds ~= '' then
        reply = reply .. encode('<BH', 3, #found) .. found
      else
        reply = reply .. (op == 1 and #found > 18 and '\2' or '\1') .. found
      end
    end

    -- Judge the charge; change the state if it is to be recorded.
    local changed, units, before = false, 0, false
    if kind == 4 then
      again = true
      if op == 1 or op == 2 then
        units = most * 1000000
        if units > used then units = used end
        if op == 1 then prev = (prev + units) % 4503599627370496 end
        used = used - units
        if used == 0 and now > time then time = now end
      elseif op == 7 then
        for at = #entries - 10, 1, -11 do
          local t, last = decode('<I7I4', entries, at)
          local back = most - units
          if back > last then back = last end
          units, time, entries = units + back, t, sub(entries, 1, at - 1)
          if last > back then
            entries = entries .. encode('<I7I4', t, last - back)
            break
          end
        end
        used = used - units
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
      local record = least <= now
      for at = 1, #holds, 11 do
        if decode('<I7', holds, at) == least then
          holds = sub(holds, 1, at - 1) .. sub(holds, at + 11)
          changed, record = true, true
          break
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
        back = least - gone - (elapsed - rest) / p3 * p2 - (part - part % p3) / p3
        if part % p3 > 0 then back = back - 1 end
        if back > most * 1000000 then back = most * 1000000 end
      elseif op == 2 then
        if oldused == least and oldtime == p1 then back = most * 1000000 end
      elseif op == 7 then
        for at = 1, #entries, 11 do
          local t, units = decode('<I7I4', entries, at)
          if t == least then
            back = units < most and units or most
            local kept = units > back and encode('<I7I4', t, units - back) or ''
            entries = sub(entries, 1, at - 1) .. kept .. sub(entries, at + 11)
            if #entries > 0 then time = decode('<I7', entries, #entries - 10) end
            break
          end
        end
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
      local fits = op > 0 and room >= least and (span == 0 or #holds < 11000)
      local record = fits and most > 0
      if pass == 1 then
        fit[i] = fits
        if kind == 1 then
          again = true
        elseif not fits then
          denier = (denier == 0 or denier == first) and first or -1
        end
      else
        record = record and fit[i] and kind == 1 and twin == denier
      end
      if record then
        changed = true
        units = room < most and room or most
        if span > 0 then
          local ends, at = now + span, 1
          while at < #holds do
            local t = decode('<I7', holds, at)
            if t > ends then break end
            if t == ends then ends = ends + 1 end
            at = at + 11
          end
          holds = sub(holds, 1, at - 1) .. encode('<I7I4', ends, units) .. sub(holds, at)
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
        local from, newer, t, last = #entries + 1, '', 0, 0
        while from > 1 do
          t, last = decode('<I7I4', entries, from - 11)
          if t < at then break end
          from = from - 11
        end
        local older, more = sub(entries, 1, from - 1), units
        if from <= #entries then
          t, last = decode('<I7I4', entries, from)
          newer = sub(entries, from)
          if t == at or #entries >= 11000 then at, more, newer = t, last + units, sub(newer, 12) end
        elseif #entries >= 11000 then
          older, more = sub(entries, 1, -12), last + units
        end
        entries = older .. encode('<I7I4', at, more) .. newer
        time, used = decode('<I7', entries, #entries - 10), used + units
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
      if holds ~= '' then
        local last = decode('<I7', holds, #holds - 10) + 999999
        last = (last - last % 1000000) / 1000000
        if last > expires then expires = last end
      end
      local state = encode('<I7I7I4', time, used, expires)
      if op == 6 then
        state = state .. encode('<I4', prev)
      elseif op == 7 then
        state = state .. entries
      elseif op == 1 and (prev > 0 or holds ~= '') then
        state = state .. encode('<I7', prev)
      end
      if holds ~= '' then state = state .. holds end
      states[first] = state
      if expires > (need[key] or 0) then need[key] = expires end
    end
  end
  if denier == 0 then break end
  -- Denied: keep nothing, unless a refund or a twin's observer counts all the same.
  if pass == 1 then
    states, need = {}, {}
    if not again then break end
  end
end

for k, expires in pairs(need) do
  local key, args = keys[k], {}
  for i = 1, n do
    if states[i] and (#keys == 1 or decode('B', blob, i * 59 - 52) == k) then
      args[#args + 1] = fields[i]
      args[#args + 1] = states[i]
    end
  end
  call('HSET', key, unpack(args))
  -- The key lives as long as any of its fields needs. If a live field was found, the key has a TTL at least as long.
  local before = 0
  if not known[k] then
    before = call('PEXPIRETIME', key)
    if before < expires * 1000 then call('PEXPIREAT', key, expires .. '000') end
  elseif expires > known[k] then
    call('PEXPIREAT', key, expires .. '000', 'GT')
  end
  -- Sweep fields that nobody needs any more, now and then: when a hash takes up a new counter, and at random.
  if before > 0 or now % 16 == 0 then
    local size = call('HLEN', key)
    if size > #args / 2 then
      local all = size <= 256 and call('HGETALL', key) or call('HRANDFIELD', key, 64, 'WITHVALUES')
      local lapsed = {}
      for i = 1, #all, 2 do
        if decode('<I4', all[i + 1], 15) * 1000000 <= now then lapsed[#lapsed + 1] = all[i] end
      end
      if #lapsed > 0 then call('HDEL', key, unpack(lapsed)) end
    end
  end
end
return encode('<Bd', denier == 0 and 1 or 0, now) .. reply
