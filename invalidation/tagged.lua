-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- tagged: what a cache's tag log on this node holds beyond a number.
--
-- KEYS  1 generation   2 tag log
-- ARGV  1 the number, in decimal: the caller knows the log up to here
-- reply { generation as "seq cleared" or nil, tag, number, tag, number, ... }
--
-- The interleaving it exists for:
--   1. a reader gets an entry of generation 7 together with the generation, 9
--   2. it asks for the log beyond 7: 8 for category 3, 9 for category 5
--   3. another invalidation makes 10 while the answer is on its way; the reader knows the log up to the
--      generation that this reply names, which was read in the same step, and to no later one

-- A log that is gone was evicted, and nobody knows what was in it: everything counts as cleared. (Or no tag was invalidated
-- since the last clearing; then that changes nothing.)

local seq, cleared = generation(KEYS[1])
if not seq then return { false } end
local log = redis.pcall('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'WITHSCORES')
if log.err or redis.call('EXISTS', KEYS[2]) == 0 then
  log, cleared = {}, seq
end
local reply = { string.format('%.0f %.0f', seq, cleared) }
for i = 1, #log, 2 do
  reply[i + 1] = log[i]
  reply[i + 2] = string.format('%.0f', tonumber(log[i + 1]))
end
return reply
