-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- set: store a value without a lease, for caches that are themselves the truth.
--
-- KEYS  1 data   2 lease   3 mark
-- ARGV  1 value, beginning with the entry header
--       2 its lifetime in ms
--       3 its version, 8 big-endian bytes; all zero: it has none, and the last write wins
--       4 epoch of the caller's cluster map, 8 big-endian bytes; taken and ignored today, see fill
-- reply "stored", "below-mark" or "older-than-stored"
--
-- The interleavings it exists for:
--   crossing writers: 1. A makes version 1 of a session, B makes version 2 of it
--                     2. B's value is stored
--                     3. A's value arrives       -> refused: a larger version stays
--   slow reader:      1. A takes the lease and reads the old value from somewhere
--                     2. B sets a new value      -> the lease is removed with it
--                     3. A fills                 -> refused: the lease is not A's
-- A refused value changes nothing at all, so it leaves the lease of others alone.

-- older(a, b): is version a less than version b? Both are 8 big-endian bytes. Byte by byte: a Lua
-- number cannot hold 2^53+1, and < on strings follows the locale of the server.
local function older(a, b)
  for i = 1, 8 do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return false
end

-- entry(key): the bytes under key if they begin like an entry (magic F5 53, a format of 1 or more,
-- 24 bytes of header), else false. Foreign bytes, and keys of another type, count as absent.
local function entry(key)
  local v = redis.pcall('GET', key)
  if type(v) ~= 'string' or #v < 24 then return false end
  local a, b, format = string.byte(v, 1, 3)
  if a ~= 0xF5 or b ~= 0x53 or format < 1 then return false end
  return v
end

-- floor(key): the version in the mark, or false. Marks may grow behind these 8 bytes one day.
local function floor(key)
  local m = redis.call('GET', key)
  if not m or #m < 8 then return false end
  return string.sub(m, 1, 8)
end

local none = string.rep('\0', 8)
local version = ARGV[3]

if version ~= none then
  local mark = floor(KEYS[3])
  if mark and older(version, mark) then
    return 'below-mark'
  end
  local stored = entry(KEYS[1])
  if stored and older(version, string.sub(stored, 9, 16)) then
    return 'older-than-stored'
  end
end

redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('UNLINK', KEYS[2])
return 'stored'
