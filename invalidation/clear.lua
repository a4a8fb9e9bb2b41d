-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- clear: make every entry of a cache on this node unreadable, without touching them.
--
-- KEYS  1 generation   2 tag log
-- ARGV  1 0; or a time of the node's clock in microseconds: only if the last clearing was before it
-- reply the new generation, "seq cleared" in decimal; the present one if there was nothing to do
--
-- An entry carries the number of the generation that it was stored under. Readers get the generation in the
-- same command as the entry and take one below "cleared" for missing, so nothing needs to be scanned.
--
-- The interleaving it exists for:
--   1. A takes the lease under generation 7 and reads the row
--   2. the table is rewritten; clear makes generation 8, cleared 8
--   3. A fills                             -> refused: A's lease is of generation 7
--
-- With a time it is for a node that came back from a snapshot at that time: what it holds from before may have been
-- deleted since. Whoever notices clears, and the first is enough: the others must not drop what was stored since then.
--
-- The deletes come first: without a generation everything is unreadable too, so a node without memory for the
-- new one is cleared all the same, and the next lease makes one. The number never falls behind the server's
-- clock, nor the clock's being set back behind the number.

local seq, cleared = generation(KEYS[1])
local before = tonumber(ARGV[1])
if before > 0 and seq and cleared >= before then
  return string.format('%.0f %.0f', seq, cleared)
end
redis.call('UNLINK', KEYS[1])
redis.call('UNLINK', KEYS[2])
seq = math.max((seq or 0) + 1, clock())
setGeneration(KEYS[1], seq, seq)
return string.format('%.0f %.0f', seq, seq)
