-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- A part of set, put before it.

-- An entry's stamp is the number of the generation that it was stored under: the first extension of its
-- header, kind 1, 8 big-endian bytes at offset 59.
local function stamped(e)
  return #e >= 67 and string.sub(e, 57, 59) == '\1\0\8'
end

-- stampOf(entry): its stamp as a number, or nil.
local function stampOf(e)
  if not stamped(e) then return nil end
  local n = 0
  for i = 60, 67 do n = n * 256 + string.byte(e, i) end
  return n
end

-- restamp(entry, seq): the entry with another stamp. One without a place for it stays as it is.
local function restamp(e, seq)
  if not stamped(e) then return e end
  local b = {}
  for i = 8, 1, -1 do
    b[i] = string.char(seq % 256)
    seq = math.floor(seq / 256)
  end
  return string.sub(e, 1, 59) .. table.concat(b) .. string.sub(e, 68)
end
