-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- incr: add to a counter; one that is made by it gets a time to live.
--
-- KEYS  1 counter
-- ARGV  1 what to add, in decimal
--       2 lifetime of a new counter in ms
-- reply the counter, in decimal: as text, because Lua's numbers end at 2^53
--
-- The interleaving it exists for:
--   1. A increments a counter that is not there: INCRBY makes it, without an expiry
--   2. A dies, or its EXPIRE is lost
--   3. the counter of this minute counts for ever, and whoever it limits stays locked out
-- A client that sends SET NX PX before INCRBY has the same hole: the counter may expire between the two.

if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then
  return ARGV[1]
end
redis.call('INCRBY', KEYS[1], ARGV[1])
return redis.call('GET', KEYS[1])
