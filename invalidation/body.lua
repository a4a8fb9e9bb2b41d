-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- A part of several scripts, put before them: the body of a large value, which lies apart from its entry.
--
-- The writer has put it under KEYS[7], a name of its own, and the step that stores the entry moves it to
-- KEYS[6]. The interleaving for which it is moved, and not written to KEYS[6] at once:
--   1. A and B each store a value; A's body arrives, then B's
--   2. B's entry is stored, then A's: the last one wins
--   3. A's entry is there with B's body: neither value can be read any more
-- The same where A's entry is refused: its body would have pushed out that of the entry which stays.

-- missing(): a body was announced but is not there (it expired, was evicted, or the node came back empty).
local function missing()
  return KEYS[7] and redis.call('EXISTS', KEYS[7]) == 0
end

-- settle(ms): the body takes its place, for as long as its entry lives. A millisecond more: an entry never
-- outlives its body.
local function settle(ms)
  if KEYS[7] then
    redis.call('RENAME', KEYS[7], KEYS[6])
    redis.call('PEXPIRE', KEYS[6], string.format('%.0f', tonumber(ms) + 1))
  end
end

-- refused(why): the body is not wanted.
local function refused(why)
  if KEYS[7] then redis.call('UNLINK', KEYS[7]) end
  return why
end
