-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- A part of several scripts, put before them.

-- floor(key): the version in the mark, or false. Marks may grow behind these 8 bytes one day. A key of
-- another type counts as no mark: that is nothing to fail for, and invalidate has done its deletes when
-- it asks, which must be answered.
local function floor(key)
  local m = redis.pcall('GET', key)
  if type(m) ~= 'string' or #m < 8 then return false end
  return string.sub(m, 1, 8)
end
