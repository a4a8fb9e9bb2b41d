-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- beat: say that a process lives, and count those that do.
--
-- KEYS  1 the living: a sorted set, process id -> the node's time of its latest beat in ms   2 what they say of themselves: a hash, by process id
-- ARGV  1 process id
--       2 how long a beat holds, in ms; 0: this process leaves
--       3 what it says of itself: "1 <start in ms since 1970>", and, in times to come, " name=value" for each thing more; readers skip what they do not know
-- reply how many live, this one included unless it leaves
--
-- By the node's time, so that it does not matter what the processes' clocks say. Whoever beats removes those that are over, 100 at a time: among five
-- hundred processes that is a few steps of a tree for each beat, and nobody reads the whole set. Both keys end by themselves when nobody
-- beats any more.
--
-- The interleaving it exists for:
--   1. A counts: 10 live
--   2. B dies without a word
--   3. A counts again, in one step with its own beat and the removal of those that are over: 9 when B's beat no longer holds.
--      With a count and a removal in two steps C's beat in between would be removed, or B counted for ever

local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local holds = tonumber(ARGV[2])
if holds == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
  return redis.call('ZCARD', KEYS[1])
end
local last = string.format('(%.0f', now - holds)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', last, 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id)
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', 2 * holds))
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', 2 * holds))
return redis.call('ZCOUNT', KEYS[1], last, '+inf')
