-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- lease: ask for the right to fill one key, and look at its value once more.
--
-- KEYS  1 data   2 lease   3 mark   4 generation of the cache, where it has one
-- ARGV  1 token ("t" and the caller's bytes, new for every request)
--       2 mode: miss, refresh or force
--       3 lifetime of the lease in ms
--       4.. earlier tokens of the same caller, whose requests it has not waited for: a lease that one of them holds goes over to the new token
-- reply { status, entry or nil, mark's version as 8 bytes or nil, generation as "seq cleared" or nil }
--       granted   the token holds the lease now
--       held      somebody else does
--       nostore   the last reader could not store the value: do not wait for it
--       found     mode miss only: a value is there, no lease was taken
--
-- The interleaving it exists for:
--   1. reader A reads the key: missing       (its own GET, one round trip ago)
--   2. reader B, who held the lease, fills it and the lease is gone
--   3. reader A asks for a lease
-- With SET NX alone A would be granted one and load what B has just stored; in one step with the
-- second look A gets B's value.
--
-- The mark's version lets the reader see, before it stores, that its source lags behind. The generation is what
-- the entry will be stored under (see clear and tag); it is made here if there is none.

local function mine(holder)
  for i = 4, #ARGV do
    if holder == ARGV[i] then
      return true
    end
  end
  return false
end

local data, mode = entry(KEYS[1]), ARGV[2]
local mark = floor(KEYS[3])
local now = false
if KEYS[4] then
  now = string.format('%.0f %.0f', generation(KEYS[4], true))
end

if mode == 'miss' and data then
  return { 'found', data, mark, now }
end
if mode ~= 'force' then
  local holder = redis.call('GET', KEYS[2])
  if holder == 'n' then
    return { 'nostore', data, mark, now }
  elseif holder and not mine(holder) then
    return { 'held', data, mark, now }
  end
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
return { 'granted', data, mark, now }
