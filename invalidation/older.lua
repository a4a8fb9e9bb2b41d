-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- A part of several scripts, put before them.

-- older(a, b): is version a less than version b? Both are 8 big-endian bytes. Byte by byte: a Lua
-- number cannot hold 2^53+1, and < on strings follows the locale of the server.
local function older(a, b)
  for i = 1, 8 do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return false
end
