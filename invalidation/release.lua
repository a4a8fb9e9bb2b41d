-- SPDX-FileCopyrightText: The Shelf Authors
-- SPDX-License-Identifier: MIT
--
-- release: give a lease back without a value.
--
-- KEYS  1 lease
-- ARGV  1 token ("t" and the caller's bytes)
--       2 the no-store marker, "n"
--       3 lifetime of that marker in ms; 0: none, just remove the lease
-- reply 1 if the token held the lease, else 0 (and nothing was changed)
--
-- The interleaving it exists for:
--   1. A takes the lease and loads for longer than the lease lives
--   2. the lease expires; B takes it and loads
--   3. A gives up and releases
-- With a plain DEL A would remove B's lease: B's fill would be refused, and C would load as well.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[3] ~= '0' then
  -- Without memory for the marker the lease still has to go, or the others wait for nobody.
  local ok = redis.pcall('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  if type(ok) ~= 'table' or not ok.err then
    return 1
  end
end
redis.call('UNLINK', KEYS[1])
return 1
