-- logs.lua implements sliding logs and their chunks for take.lua. It has no KEYS, ARGV and reply of its own: it is inserted there
-- as the body of a function, with that script's locals in scope, and runs only if a charge is on a log. It returns a table of
-- functions. take.lua documents the format of logs, chunks and entries: an entry has 11 bytes, a chunk's directory record 15.
--
-- chunkSize is the maximum number of entries in a chunk, maxChunks the number of chunks from which small ones are joined,
-- mergeFrom the number of entries from which a late entry is merged into the next one, maxEntries the maximum number of entries.
local chunkSize, maxChunks, mergeFrom, maxEntries = 128, 160, 128, 10000

-- openLog decodes a log: its newest entries and the directory of its chunks.
local function openLog(state, key, field)
  local log = {key = key, field = field, chunks = '', newest = '', oldest = 0, entries = 0, changes = {}}
  if not state then return log end
  local chunks = decode('<H', state, 19)
  if chunks == 0 then
    log.newest = sub(state, 21)
    log.entries = #log.newest / 11
    if log.entries > 0 then log.oldest = decode('<I7', log.newest) end
  else
    log.oldest, log.entries = decode('<I7H', state, 21)
    log.chunks = sub(state, 30, 29 + chunks * 15)
    log.newest = sub(state, 30 + chunks * 15)
  end
  return log
end

-- closeLog encodes the log for the counter's state, and stores changed chunks.
local function closeLog(log)
  for field, text in pairs(log.changes) do put(log.key, field, text) end
  if log.chunks == '' then return '\0\0' .. log.newest end
  return encode('<HI7H', #log.chunks / 15, log.oldest, log.entries) .. log.chunks .. log.newest
end

-- search returns the position of the first record whose number at offset is not below t. Records have a fixed size and are
-- sorted by that number.
local function search(text, size, format, offset, t)
  local low, high = 0, #text / size
  while low < high do
    local middle = low + high
    middle = (middle - middle % 2) / 2
    if decode(format, text, middle * size + offset) < t then low = middle + 1 else high = middle end
  end
  return low * size + 1
end

-- chunkField returns the field of a chunk.
local function chunkField(log, name) return log.field .. 'l' .. encode('<H', name) end

-- chunk returns the entries of a chunk that count.
local function chunk(log, name, count)
  local field = chunkField(log, name)
  local text = log.changes[field]
  if text == nil then text = get(log.key, field) end
  return sub(text or '', -11 * count)
end

-- discard deletes the chunks of an expired state.
local function discard(log, state)
  local chunks = openLog(state).chunks
  for at = 1, #chunks, 15 do log.changes[chunkField(log, decode('<H', chunks, at))] = false end
end

-- newestTime returns the time of the newest entry.
local function newestTime(log) return decode('<I7', log.newest, #log.newest - 10) end

-- cut keeps entries up to t from being merged with later ones in the reply.
local function cut(first, t) cuts[first][#cuts[first] + 1] = t end

-- expired returns the number of bytes of entries that have left the window, and their units.
local function expired(text, window)
  local bytes, units = 0, 0
  while bytes < #text do
    local t, u = decode('<I7I4', text, bytes + 1)
    if t + window > now then break end
    bytes, units = bytes + 11, units + u
  end
  return bytes, units
end

-- prune drops the entries that have left the window, and returns their units.
local function prune(log, window)
  local dropped = 0
  while log.chunks ~= '' and log.oldest + window <= now do
    local name, last, total, count = decode('<HI7I4H', log.chunks)
    if last + window <= now then
      log.changes[chunkField(log, name)] = false
      log.chunks, log.entries, log.oldest = sub(log.chunks, 16), log.entries - count, 0
      dropped = dropped + total
    else
      local text = chunk(log, name, count)
      local bytes, units = expired(text, window)
      local expiredEntries = bytes / 11
      log.chunks = encode('<HI7I4H', name, last, total - units, count - expiredEntries) .. sub(log.chunks, 16)
      log.entries, log.oldest = log.entries - expiredEntries, decode('<I7', text, bytes + 1)
      return dropped + units
    end
  end
  if log.chunks == '' then
    local bytes, units = expired(log.newest, window)
    log.newest, log.entries, dropped = sub(log.newest, bytes + 1), log.entries - bytes / 11, dropped + units
    if log.newest ~= '' then log.oldest = decode('<I7', log.newest) end
  end
  return dropped
end

-- fitsAt returns the time of the entry that must leave the window to free this many units.
local function fitsAt(log, units)
  local text, from = log.newest, 1
  for at = 1, #log.chunks, 15 do
    local name, _, total, count = decode('<HI7I4H', log.chunks, at)
    if total >= units then
      text = chunk(log, name, count)
      break
    end
    units = units - total
  end
  while true do
    local t, u = decode('<I7I4', text, from)
    units, from = units - u, from + 11
    if units <= 0 then return t end
  end
end

-- place returns the text with the entry of a time or the next newer one; if that is a chunk, also its position in the directory
-- and its directory record.
local function place(log, t)
  local at = search(log.chunks, 15, '<I7', 3, t)
  if at > #log.chunks then return log.newest end
  local name, _, total, count = decode('<HI7I4H', log.chunks, at)
  return chunk(log, name, count), at, name, total, count
end

-- replace replaces the text that place returned. units and entries are the changes of its totals. If no newest entries are left,
-- the entries of the newest chunk become the newest entries.
local function replace(log, text, units, entries, at, name, total, count)
  log.entries = log.entries + entries
  if not at then
    log.newest = text
  elseif text == '' then
    log.changes[chunkField(log, name)] = false
    log.chunks = sub(log.chunks, 1, at - 1) .. sub(log.chunks, at + 15)
  else
    log.changes[chunkField(log, name)] = text
    local record = encode('<HI7I4H', name, decode('<I7', text, #text - 10), total + units, count + entries)
    log.chunks = sub(log.chunks, 1, at - 1) .. record .. sub(log.chunks, at + 15)
  end
  log.oldest = 0 -- unknown: prune looks it up
  if log.newest == '' and log.chunks ~= '' then
    local last, _, _, number = decode('<HI7I4H', log.chunks, #log.chunks - 14)
    log.newest = chunk(log, last, number)
    log.changes[chunkField(log, last)] = false
    log.chunks = sub(log.chunks, 1, -16)
  end
end

-- seal moves the newest entries to a new chunk. If there are more than maxChunks, refunds have made some of them small: it joins
-- two of them.
local function seal(log)
  local units, name = 0, 1
  for at = 8, #log.newest, 11 do units = units + decode('<I4', log.newest, at) end
  if log.chunks ~= '' then name = (decode('<H', log.chunks, #log.chunks - 14) + 1) % 65536 end
  log.changes[chunkField(log, name)] = log.newest
  log.chunks = log.chunks .. encode('<HI7I4H', name, newestTime(log), units, #log.newest / 11)
  log.newest = ''
  if #log.chunks > maxChunks * 15 then
    for at = 1, #log.chunks - 15, 15 do
      local name1, _, total1, count1, name2, last, total2, count2 = decode('<HI7I4HHI7I4H', log.chunks, at)
      if count1 + count2 <= chunkSize then
        log.changes[chunkField(log, name2)] = chunk(log, name1, count1) .. chunk(log, name2, count2)
        log.changes[chunkField(log, name1)] = false
        local record = encode('<HI7I4H', name2, last, total1 + total2, count1 + count2)
        log.chunks = sub(log.chunks, 1, at - 1) .. record .. sub(log.chunks, at + 30)
        break
      end
    end
  end
end

-- add records units at a time.
local function add(log, units, t)
  local last, before = 0, 0
  if log.newest ~= '' then last, before = decode('<I7I4', log.newest, #log.newest - 10) end
  if t <= last then
    local text, at, name, total, count = place(log, t)
    local from = search(text, 11, '<I7', 1, t)
    local t2, more = decode('<I7I4', text, from)
    local entry, rest, entries = encode('<I7I4', t, units), from, 1
    if t2 == t or log.entries >= mergeFrom then entry, rest, entries = encode('<I7I4', t2, more + units), from + 11, 0 end
    replace(log, sub(text, 1, from - 1) .. entry .. sub(text, rest), units, entries, at, name, total, count)
  elseif log.entries >= maxEntries then
    log.newest = sub(log.newest, 1, -12) .. encode('<I7I4', t, before + units)
  else
    if #log.newest >= chunkSize * 11 then seal(log) end
    log.newest, log.entries = log.newest .. encode('<I7I4', t, units), log.entries + 1
  end
end

-- refund removes up to maxUnits units from the entry of a time, and returns how many.
local function refund(log, t, maxUnits, first)
  local text, at, name, total, count = place(log, t)
  local from = search(text, 11, '<I7', 1, t)
  if from > #text then return 0 end
  local t2, units = decode('<I7I4', text, from)
  if t2 ~= t then return 0 end
  cut(first, t - 1)
  cut(first, t)
  local entry, entries = '', -1
  if maxUnits < units then entry, entries = encode('<I7I4', t, units - maxUnits), 0 else maxUnits = units end
  replace(log, sub(text, 1, from - 1) .. entry .. sub(text, from + 11), -maxUnits, entries, at, name, total, count)
  return maxUnits
end

-- credit removes up to maxUnits units from the newest entries, and returns how many.
local function credit(log, maxUnits, first)
  local given = 0
  while given < maxUnits and log.newest ~= '' do
    local from, t, units = #log.newest + 1, 0, 0
    while from > 1 and given < maxUnits do
      from = from - 11
      t, units = decode('<I7I4', log.newest, from)
      given = given + units
    end
    local entry, entries = '', (from - #log.newest - 1) / 11
    if given > maxUnits then
      entry, entries = encode('<I7I4', t, given - maxUnits), entries + 1
      given = maxUnits
    end
    -- Chunks that are removed as a whole are not read.
    while from == 1 and entry == '' and log.chunks ~= '' do
      local name, _, total, count = decode('<HI7I4H', log.chunks, #log.chunks - 14)
      if given + total > maxUnits then break end
      log.changes[chunkField(log, name)] = false
      log.chunks, entries, given = sub(log.chunks, 1, -16), entries - count, given + total
    end
    replace(log, sub(log.newest, 1, from - 1) .. entry, 0, entries)
  end
  if log.newest ~= '' then cut(first, newestTime(log)) end
  return given
end

-- merged encodes a log for the reply, with all entries between two cuts merged into one.
local function merged(state, key, field, first)
  if not state then return '\0' end
  local log = openLog(state, key, field)
  local leftUnits, leftEntries = decode('<I7', state, 12), log.entries
  local marks, mark, text = cuts[first], 1, {}
  table.sort(marks)
  local units, entries, newest = 0, 0, 0 -- of the entry being merged
  local function flush()
    if entries > 0 then text[#text + 1] = encode('<I7I4H', newest, units, entries) end
    units, entries = 0, 0
  end
  local at = 1
  while leftEntries > 0 do
    while marks[mark] and marks[mark] < log.oldest do mark = mark + 1 end
    local total, number, last, name = leftUnits, leftEntries, 0, nil
    if marks[mark] and at < #log.chunks then
      name, last, total, number = decode('<HI7I4H', log.chunks, at)
      at = at + 15
    else
      last = newestTime(log)
    end
    leftUnits, leftEntries = leftUnits - total, leftEntries - number
    if marks[mark] and marks[mark] < last then
      local entriesText = log.newest
      if name then entriesText = sub(stored(key, chunkField(log, name)) or '', -11 * number) end
      local from = 1
      while marks[mark] and marks[mark] < last do
        local t, u = decode('<I7I4', entriesText, from)
        if t <= marks[mark] then
          from, newest, units, entries = from + 11, t, units + u, entries + 1
          total, number = total - u, number - 1
        else
          flush()
          mark = mark + 1
        end
      end
    end
    units, entries, newest = units + total, entries + number, last
  end
  flush()
  return '\1' .. sub(state, 1, 18) .. encode('<H', #text) .. table.concat(text)
end

return {
  openLog = openLog, closeLog = closeLog, discard = discard, newestTime = newestTime, cut = cut, prune = prune,
  fitsAt = fitsAt, add = add, refund = refund, credit = credit, merged = merged,
}
