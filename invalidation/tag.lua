-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- tag: make every entry of a cache on this node that carries a tag unreadable, without touching them.
--
-- KEYS  1 generation   2 tag log: a sorted set, tag -> the number of its latest invalidation
-- ARGV  1 tag
--       2 how many tags the log may hold
-- reply the new generation, "seq cleared" in decimal
--
-- An entry carries its tags and the number of the generation that it was stored under. Readers get the generation
-- in the same command as the entry. When it has moved on since the entry was stored they ask, once, for what was
-- added to the log (see tagged), and take an entry for missing if one of its tags has a larger number.
--
-- The interleaving it exists for:
--   1. A takes the lease under generation 7 and reads a row of category 3
--   2. category 3 changes; tag makes generation 8 and notes 8 for it
--   3. A fills                             -> refused: the log has 8 for a tag of the entry, the lease is of 7
--
-- A log that is full forgets its oldest tags; everything up to them counts as cleared from then on. The delete
-- comes first: a node without memory for the note has no generation then, which clears the whole cache there.

local seq, cleared = generation(KEYS[1], true)
redis.call('UNLINK', KEYS[1])
if redis.call('EXISTS', KEYS[2]) == 0 then
  cleared = seq -- the log was evicted (see tagged), or there has been nothing to note since the last clearing
end
seq = seq + 1
redis.call('ZADD', KEYS[2], string.format('%.0f', seq), ARGV[1])
local over = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[2])
if over > 0 then
  local last = redis.call('ZRANGE', KEYS[2], over - 1, over - 1, 'WITHSCORES')
  cleared = math.max(cleared, tonumber(last[2]))
  redis.call('ZREMRANGEBYRANK', KEYS[2], 0, over - 1)
end
setGeneration(KEYS[1], seq, cleared)
return string.format('%.0f %.0f', seq, cleared)
