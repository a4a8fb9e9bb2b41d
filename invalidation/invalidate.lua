-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- invalidate: remove an entry, void every fill of it that is under way, leave a mark.
--
-- KEYS  1 data   2 lease   3 mark, and where values may have their bodies apart   4 body
-- ARGV  1 row version that was written, 8 big-endian bytes; all zero: not known
--       2 lifetime of the mark in ms
--       3 epoch of the caller's cluster map, 8 big-endian bytes. Taken and ignored today. One day
--         an invalidation with an older epoch than the node's will be done and answered "stale
--         map", so that its sender repeats it at the nodes which own the key now.
-- reply { 1 if an entry was there else 0, mark's version as 8 bytes or nil, 1 if the mark could not
--       be written else 0 }
--
-- The interleaving it exists for:
--   1. A takes the lease and reads row version 1
--   2. B writes version 2 and removes the data    (a plain DEL; the lease stays)
--   3. A fills version 1 under its good lease: stale until its TTL ends
-- Data and lease go in one step. The mark then guards against sources that lag behind; see fill.
--
-- The deletes come first, and nothing after them may raise an error: a node without memory, or a
-- user who may not SET, costs the mark but never the deletes. The larger version wins, not the
-- later: invalidations of versions 3 and 2 that cross on their way leave the mark 3.

local none = string.rep('\0', 8)
local removed = redis.call('UNLINK', KEYS[1])
redis.call('UNLINK', KEYS[2])
if KEYS[4] then -- nobody can reach it any more: only its memory is wanted, so it may fail
  redis.pcall('UNLINK', KEYS[4])
end

local old, new = floor(KEYS[3]), ARGV[1]
if old and older(new, old) then
  new = old
end
if new == none then
  return { removed, false, 0 } -- a mark without a version would refuse every fill that has none
end

-- The mark's life is never shortened: another caller may have promised a longer one.
local ttl, left = ARGV[2], redis.pcall('PTTL', KEYS[3])
if type(left) == 'number' and left > tonumber(ttl) then
  ttl = string.format('%.0f', left)
end
local ok = redis.pcall('SET', KEYS[3], new, 'PX', ttl)
if type(ok) == 'table' and ok.err then
  return { removed, old, 1 }
end
return { removed, new, 0 }
