-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- A part of several scripts, put before them.

-- leaveMark(key, new, ttl): leaves the mark "row version new exists" for ttl ms (a string), and returns what the
-- mark is then, or false, and 1 if it could not be written, else 0. The larger version wins, not the later:
-- invalidations of versions 3 and 2 that cross on their way leave the mark 3. Without a version it leaves none: a
-- mark without one would refuse every fill that has none. The mark's life is never shortened: another caller may
-- have promised a longer one. It raises no error: what was done before it must be answered.
local function leaveMark(key, new, ttl)
  local old = floor(key)
  if old and older(new, old) then
    new = old
  end
  if new == string.rep('\0', 8) then
    return false, 0
  end
  local left = redis.pcall('PTTL', key)
  if type(left) == 'number' and left > tonumber(ttl) then
    ttl = string.format('%.0f', left)
  end
  local ok = redis.pcall('SET', key, new, 'PX', ttl)
  if type(ok) == 'table' and ok.err then
    return old, 1
  end
  return new, 0
end
