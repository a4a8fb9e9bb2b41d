-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- invalidate: remove an entry, void every fill of it that is under way, leave a mark.
--
-- KEYS  1 data   2 lease   3 mark, and where values may have their bodies apart   4 body, and where there may be copies on other
--       nodes   5 split record (see split)
-- ARGV  1 row version that was written, 8 big-endian bytes; all zero: not known
--       2 lifetime of the mark in ms
--       3 epoch of the caller's cluster map, 8 big-endian bytes. Taken and ignored today. One day
--         an invalidation with an older epoch than the node's will be done and answered "stale
--         map", so that its sender repeats it at the nodes which own the key now.
-- reply { 1 if an entry was there else 0, mark's version as 8 bytes or nil, 1 if the mark could not
--       be written else 0 }; with KEYS 5 also the record or nil: the caller invalidates the copies next
--
-- The interleaving it exists for:
--   1. A takes the lease and reads row version 1
--   2. B writes version 2 and removes the data    (a plain DEL; the lease stays)
--   3. A fills version 1 under its good lease: stale until its TTL ends
-- Data and lease go in one step. The mark then guards against sources that lag behind; see fill.
--
-- The deletes come first, and nothing after them may raise an error: a node without memory, or a
-- user who may not SET, costs the mark but never the deletes.

local removed = redis.call('UNLINK', KEYS[1])
redis.call('UNLINK', KEYS[2])
if KEYS[4] then -- nobody can reach it any more: only its memory is wanted, so it may fail
  redis.pcall('UNLINK', KEYS[4])
end
local mark, failed = leaveMark(KEYS[3], ARGV[1], ARGV[2])
if KEYS[5] then
  local record = redis.pcall('GET', KEYS[5])
  return { removed, mark, failed, type(record) == 'string' and record }
end
return { removed, mark, failed }
