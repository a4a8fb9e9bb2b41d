-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- set: store a value without a lease, for caches that are themselves the truth.
--
-- KEYS  1 data   2 lease   3 mark   4 generation of the cache, where it has one   6 body, 7 staged body, where the value has one apart (see
--       body.lua)
-- ARGV  1 value, beginning with the entry header
--       2 its lifetime in ms
--       3 its version, 8 big-endian bytes; all zero: it has none, and the last write wins
--       4 epoch of the caller's cluster map, 8 big-endian bytes; taken and ignored today, see fill
-- reply "stored", "below-mark" or "older-than-stored"; an error if the staged body is not there
--
-- The interleavings it exists for:
--   crossing writers: 1. A makes version 1 of a session, B makes version 2 of it
--                     2. B's value is stored
--                     3. A's value arrives       -> refused: a larger version stays
--   slow reader:      1. A takes the lease and reads the old value from somewhere
--                     2. B sets a new value      -> the lease is removed with it
--                     3. A fills                 -> refused: the lease is not A's
--   cleared cache:    1. the cache is cleared while version 2 of a session is stored: nobody can read it
--                     2. A sets version 1        -> stored: what nobody can read is not compared
-- The value is stamped with the generation here, since no lease told its writer.
-- A refused value changes nothing at all, so it leaves the lease of others alone.

local none = string.rep('\0', 8)
local version, value = ARGV[3], ARGV[1]
local seq, cleared
if KEYS[4] then
  seq, cleared = generation(KEYS[4], true)
  value = restamp(value, seq)
end

-- readable(entry): is it of the cache's generation?
local function readable(e)
  if not seq then return true end
  local own = stampOf(e)
  return own and own >= cleared and own <= seq
end

if version ~= none then
  local mark = floor(KEYS[3])
  if mark and older(version, mark) then
    return refused('below-mark')
  end
  local stored = entry(KEYS[1])
  if stored and readable(stored) and older(version, string.sub(stored, 9, 16)) then
    return refused('older-than-stored')
  end
end

if missing() then
  return redis.error_reply('ERR the body is not there')
end
redis.call('SET', KEYS[1], value, 'PX', ARGV[2])
redis.call('UNLINK', KEYS[2])
settle(ARGV[2])
return 'stored'
