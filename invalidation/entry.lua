-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- A part of several scripts, put before them.

-- entry(key): the bytes under key if they begin like an entry (magic F5 53, a format of 1 or more,
-- 24 bytes of header), else false. Foreign bytes, and keys of another type, count as absent.
local function entry(key)
  local v = redis.pcall('GET', key)
  if type(v) ~= 'string' or #v < 24 then return false end
  local a, b, format = string.byte(v, 1, 3)
  if a ~= 0xF5 or b ~= 0x53 or format < 1 then return false end
  return v
end
