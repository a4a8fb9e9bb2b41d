-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- heat: add to how often the fleet reads some keys, and say how often that is.
--
-- KEYS  the counters of the keys, each beside its entry: "a n t k l m"
--         a, n  reads a second: all of them, and those that went to a node, as of t
--         t     the node's time, in ms
--         k     on how many nodes the key should be; l: since when fewer would do, in ms (0: they would not); m: the most that was needed since then
--       (strings and not hashes, so that one MGET brings all of them: half of the time)
-- ARGV  1 half-life in ms   2 how long a counter that nobody adds to is kept, in ms   3 for how long fewer copies must do before there are fewer, in ms
--       4 until when, by the node's time in ms, the call is good: after that its sender has given it up, and says the same again; 0: for ever
--       then for each key: what to add to a and to n (may be negative; both 0: only look), the reads a second that one node should serve, the most nodes
-- reply for each key: a, n and k, rounded down; 0, 0, 1 where there is no counter. Nothing at all where the call came too late
--
-- What a process adds is by how much its own rate differs from what is left of what it added before (see heat.go), so a and n are the sums of the
-- processes' rates, and what a process that died has added halves with each half-life. By the node's time, which may jump back when a replica is promoted: then
-- nothing decays, and "since when fewer would do" begins anew.
--
-- k is decided here and not in the processes, so that they agree about it: each has another moment's sum. It grows at once. It falls when a quarter more reads would still
-- do with fewer, all the time for as long as ARGV 3 says, to the most that was needed meanwhile.

local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local halfLife, keep, calm, good = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if good > 0 and now > good then return {} end

local function needed(reads, each, most)
  return math.max(1, math.min(most, math.ceil(reads / each)))
end

local function parse(counter)
  if counter then
    local a, n, t, k, l, m = string.match(counter, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
    if m then
      return tonumber(a), tonumber(n), tonumber(t), tonumber(k), tonumber(l), tonumber(m)
    end
  end
  return 0, 0, now, 1, 0, 0
end

local reply = {}
local counters = redis.call('MGET', unpack(KEYS))
for i, key in ipairs(KEYS) do
  local all, asked, each, most = tonumber(ARGV[4 * i + 1]), tonumber(ARGV[4 * i + 2]), tonumber(ARGV[4 * i + 3]), tonumber(ARGV[4 * i + 4])
  local a, n, t, k, l, m = parse(counters[i])
  local changed = all ~= 0 or asked ~= 0
  if now > t then
    local left = 2 ^ ((t - now) / halfLife)
    a, n = a * left, n * left
  end
  a, n = math.max(0, a + all), math.max(0, n + asked)
  if most > 1 then
    local less = needed(n * 1.25, each, most)
    local k0, l0, m0 = k, l, m
    if less >= k then
      k, l, m = math.max(k, needed(n, each, most)), 0, 0
    elseif l == 0 or l > now then -- since now; also where the clock was set back
      l, m = now, less
    else
      m = math.max(m, less)
      if now - l >= calm then
        k, l, m = m, 0, 0
      end
    end
    k = math.min(k, most)
    changed = changed or counters[i] and (k ~= k0 or l ~= l0 or m ~= m0)
  end
  if changed then
    redis.call('SET', key, string.format('%.3f %.3f %.0f %d %.0f %d', a, n, now, k, l, m), 'PX', keep)
  end
  reply[3 * i - 2], reply[3 * i - 1], reply[3 * i] = math.floor(a), math.floor(n), k
end
return reply
