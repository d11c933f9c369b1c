-- slots.lua decides a charge on a concurrency limit for take.lua. It has no KEYS, ARGV and reply of its own: it is inserted there as a
-- block, with that script's locals in scope, and sets changed, state and expires.
--
-- A counter has 18 bytes, of which its time is a lower bound on when a holder expires, and 26 bytes per holder. A holder moves to the
-- front when it changes. Only the charge's own holder is decoded, unless one may have expired.
--
-- maxHolders is the maximum number of holders, wholeReply the number up to which the reply has all of them.
local maxHolders, wholeReply, find = 1000, 8, string.find
local text, id = found or '', sub(blob, i * 59 - 7, i * 59)
local own, holderUntil, holderUnits, holderSeq = nil, 0, 0, 0 -- the charge's own holder, and its position or nil
local reports = pass == 1 and first == i
if found then
  if reports and #found <= 18 + wholeReply * 26 then
    reports = false
    if n > 1 then reply = reply .. encode('<BH', 3, #found) .. found else head, reply = '\1', found end
  end
  if time <= now then
    local kept, from, soonest = {}, 19, 0
    for at = 19, #text, 26 do
      local t, units = decode('<I7I4', text, at + 8)
      if t <= now then
        kept[#kept + 1] = sub(text, from, at - 1)
        from, used = at + 26, used - units
      elseif soonest == 0 or t < soonest then
        soonest = t
      end
    end
    time = soonest
    if from > 19 then text = sub(text, 1, 18) .. table.concat(kept) .. sub(text, from) end
  end
  -- An id may also occur within or across other holders.
  own = find(text, id, 19, true)
  while own and (own - 19) % 26 > 0 do own = find(text, id, own + 26 - (own - 19) % 26, true) end
  if own then holderUntil, holderUnits, holderSeq = decode('<I7I4I7', text, own + 8) end
elseif reports then
  reply, reports = reply .. '\0', false
end
if reports then
  local count, entries, seen = 0, '', n > i and {[id] = true}
  if own then count, entries = 1, sub(text, own, own + 25) end
  for j = i + 1, n do
    local other = sub(blob, j * 59 - 7, j * 59)
    if decode('B', blob, j * 59 - 48) == i and not seen[other] then
      seen[other] = true
      local at = find(text, other, 19, true)
      while at and (at - 19) % 26 > 0 do at = find(text, other, at + 26 - (at - 19) % 26, true) end
      if at then count, entries = count + 1, entries .. sub(text, at, at + 25) end
    end
  end
  reply = reply .. encode('<BI4I7I7HB', 2, expires, time, used, (#text - 18) / 26 - count, count) .. entries
end

-- Decide the charge. added is how many units the holder gets, negative if it releases some.
local full, added = not own and #text >= 18 + maxHolders * 26, maxUnits
if kind == 2 then
  secondPass, changed = true, own
  added = maxUnits < holderUnits and -maxUnits or -holderUnits
elseif kind == 3 then
  secondPass, changed = true, own or maxUnits > 0 and not full
elseif kind == 5 then
  secondPass, changed = true, own and p3 > holderSeq or not own and not full
  added = maxUnits - holderUnits
else
  local fits = not full and p1 - used >= minOrMark
  changed = fits and maxUnits > 0
  if pass > 1 then
    changed = changed and fitted[i] and kind == 1 and twin == denier
  elseif kind == 1 then
    fitted[i], secondPass = fits, true
  elseif not fits then
    denier = (denier == 0 or denier == first) and first or -1
  end
  if added > p1 - used then added = p1 - used end
end
if changed then
  if added > 4000000000 - used then added = 4000000000 - used end
  used, holderUnits = used + added, holderUnits + added
  if p3 > holderSeq then holderSeq = p3 end
  if now + p2 > holderUntil and (kind ~= 2 or holderUnits == 0) then holderUntil = now + p2 end
  if not own and (#text <= 18 or holderUntil < time) then time = holderUntil end
  local last = holderUntil + 999999
  last = (last - last % 1000000) / 1000000
  if last > expires then expires = last end
  state = encode('<I4I7I7c8I7I4I7', expires, time, used, id, holderUntil, holderUnits, holderSeq)
  if own and own > 19 then
    state = state .. sub(text, 19, own - 1) .. sub(text, own + 26)
  else
    state = state .. sub(text, own and 45 or 19)
  end
end
