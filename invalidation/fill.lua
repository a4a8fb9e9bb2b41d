-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- fill: store what was loaded under a lease, if that is still allowed.
--
-- KEYS  1 data   2 lease   3 mark   4 generation, 5 tag log of the cache, where it has them   6 body, 7 staged body, where the value has one
--       apart (see body.lua)
-- ARGV  1 token ("t" and the caller's bytes)
--       2 value, beginning with the entry header
--       3 its lifetime in ms
--       4 its row version, 8 big-endian bytes; all zero: it has none
--       5 "1" if it is negative (no such row), else "0"
--       6 epoch of the caller's cluster map, 8 big-endian bytes. Taken and ignored today. The node
--         will keep the newest epoch it has seen, and a fill with an older one will be refused: its
--         sender may not know yet that the key lives elsewhere.
--       7 "1" if the reader could not read the stored bytes: their version is not compared
--       8 "0"; or, where a writer stores what it has written, the lifetime in ms of the mark that it leaves
--       9 with KEYS 4: the number of the generation that the lease was granted under, in decimal
--       10 and on: the tags of the value
-- reply "stored", "lease-lost", "below-mark" or "older-than-stored"; an error if the staged body is not there
--
-- The interleavings it exists for:
--   slow reader:    1. A takes the lease and reads row version 1
--                   2. B writes version 2 and invalidates: data and lease are removed
--                   3. A fills version 1               -> refused: the lease is not A's
--                   The same if the lease ran out, was evicted, or the node came back empty: only
--                   a token that is there is a proof, so a missing one means refuse.
--   lagging source: 1. B writes version 2 and invalidates, leaving the mark 2
--                   2. A takes the lease and reads version 1 from a replica that lags behind
--                   3. A fills version 1               -> refused: below the mark
--                   Without a version (0, below any mark) or as "no such row" it is refused too: it
--                   cannot show that it saw version 2.
--   lagging source behind a writer that stores:
--                   1. W takes the lease, writes version 2 to the database and fills it
--                   2. the entry is evicted, or another writer invalidates without a version
--                   3. A takes the lease, reads version 1 from the replica and fills it
--                                                      -> refused: W's fill has left the mark 2
--   cleared cache:  1. A takes the lease and reads the row, under generation 7
--                   2. the cache is cleared, or one of the row's tags invalidated: generation 8
--                   3. A fills                         -> refused: as if the lease were lost. (Readers would
--                   not take the entry either; but who waits for A must hear that it is too old.)
--   late refresh:   1. version 2 is stored; its lease is free
--                   2. A takes the lease and refreshes from the lagging replica: version 1
--                   3. A fills version 1               -> refused: a larger version stays
--                   A negative fill has version 0, so it never replaces an entry with a version; a
--                   row that vanished without an invalidation is seen when the entry expires.
--   foreign bytes:  1. another program, or another codec, left bytes that only begin like an entry
--                   2. A cannot read them, takes the lease and loads version 1
--                   3. A fills version 1               -> stored, although eight of those bytes
--                   look like a larger version: otherwise nothing could replace them

local version, negative = ARGV[4], ARGV[5] == '1'

if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return refused('lease-lost')
end

-- outdated(): was the cache cleared, or one of the tags invalidated, since the lease was granted?
local function outdated()
  local own, seq, cleared = tonumber(ARGV[9]), generation(KEYS[4])
  if not seq or own < cleared or own > seq then return true end
  if ARGV[10] and own < seq and redis.call('EXISTS', KEYS[5]) == 0 then return true end -- the log was evicted
  for i = 10, #ARGV do
    local n = redis.pcall('ZSCORE', KEYS[5], ARGV[i])
    if type(n) == 'string' and tonumber(n) > own then return true end
  end
  return false
end
if KEYS[4] and outdated() then
  redis.call('UNLINK', KEYS[2])
  return refused('lease-lost')
end

local mark = floor(KEYS[3])
if mark and (negative or older(version, mark)) then
  redis.call('UNLINK', KEYS[2])
  return refused('below-mark')
end

local stored = entry(KEYS[1])
if stored and ARGV[7] ~= '1' and older(version, string.sub(stored, 9, 16)) then
  redis.call('UNLINK', KEYS[2])
  return refused('older-than-stored')
end

if missing() then
  redis.call('UNLINK', KEYS[2])
  return redis.error_reply('ERR the body is not there')
end

-- The SET comes first: after any other write the node would let it through even when its memory
-- is full (a script that has begun to write is not stopped half-way).
local ok = redis.pcall('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('UNLINK', KEYS[2])
if type(ok) == 'table' and ok.err then
  return refused(ok)
end
settle(ARGV[3])
if ARGV[8] ~= '0' then
  leaveMark(KEYS[3], version, ARGV[8])
end
return 'stored'
