-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- split: look at an entry in order to copy it to another node, and note beside it how far copies can exist.
--
-- KEYS  1 data   2 split record   3 generation of the cache, where it has one
-- ARGV  1 k: on how many nodes the key is to be, this one counted
--       2 lifetime of the record in ms: longer than the lease of a copy and the copy together
-- reply { the bytes under data or nil, generation as "seq cleared" or nil, 1 if the record is there else 0 }
--
-- The record is "k bound until", in decimal. For as long as it lives copies may be on the first k nodes of the
-- key's walk; up to "until" (milliseconds of this server's clock) on the first "bound", from when k was larger.
--
-- The interleaving it exists for:
--   1. A takes the lease of a copy on node 2 and reads the entry here
--   2. B invalidates: it removes the entry here and finds no record, so it goes to no other node
--   3. A fills the copy                     -> the old row, for as long as the copy lives
-- With the record written in the step that reads the entry, B either comes before that step, and A reads what is
-- there after it; or it finds the record, and removes A's lease, or the copy, on node 2.
--
-- A record that cannot be written (no memory, a replica) is answered 0: then nothing may be copied.

local k, life = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = math.floor(clock() / 1000)

-- wider(): how far copies can still be that were made under a larger k, and until when; or nil.
local function wider()
  local old = redis.pcall('GET', KEYS[2])
  local was, bound, ends
  if type(old) == 'string' then was, bound, ends = string.match(old, '^(%d+) (%d+) (%d+)$') end
  if not was then return nil end
  was, bound, ends = tonumber(was), tonumber(bound), tonumber(ends)
  local left = redis.call('PTTL', KEYS[2])
  local whole = now + (left > 0 and left or life) -- until when copies under "was" can be
  if ends <= now then
    bound, ends = was, whole
  elseif k < was then
    ends = math.max(ends, whole)
  end
  if bound > k then return bound, ends end
end

local bound, ends = wider()
local record = string.format('%.0f %.0f %.0f', k, bound or k, ends or now + life)
local ok = redis.pcall('SET', KEYS[2], record, 'PX', ARGV[2])
local noted = 1
if type(ok) == 'table' and ok.err then noted = 0 end
local data, gen = redis.pcall('GET', KEYS[1]), false
if KEYS[3] then
  local seq, cleared = generation(KEYS[3])
  if seq then gen = string.format('%.0f %.0f', seq, cleared) end
end
return { type(data) == 'string' and data, gen, noted }
