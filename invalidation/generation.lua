-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- A part of several scripts, put before them.

-- setGeneration(key, seq, cleared): both in decimal; tostring would write 1.7645e+15.
local function setGeneration(key, seq, cleared)
  redis.call('SET', key, string.format('%.0f %.0f', seq, cleared))
end

-- clock(): the server's time in microseconds, some 2^50.5: Lua's numbers are exact up to 2^53.
local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

-- generation(key, make): the cache's generation: the number of its latest clearing or tag invalidation, and
-- the number below which every entry is gone. Without one (never made, evicted, the node came back empty) nil,
-- or, with make, a new one that begins at the server's time, above all numbers that were given before: which
-- clears the cache here, since what was invalidated meanwhile is not known any more.
local function generation(key, make)
  local g = redis.pcall('GET', key)
  if type(g) == 'string' then
    local seq, cleared = string.match(g, '^(%d+) (%d+)$')
    if seq then return tonumber(seq), tonumber(cleared) end
  end
  if not make then return nil end
  local now = clock()
  setGeneration(key, now, now)
  return now, now
end
