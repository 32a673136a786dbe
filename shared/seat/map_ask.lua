-- The map of this second. KEYS: its lease, the map. ARGV: our token, how long a
-- lease lasts (ms). Returns {"map", ms left, bytes}; {"load"}: the second is
-- ours; {"wait"}: another loads; {"away"}: it found Postgres away.
local owner = redis.call('GET', KEYS[1])
if not owner then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return {'load'}
end
if owner == 'away' then
  return {'away'}
end
local map = redis.call('GET', KEYS[2])
if map and string.sub(map, 1, #owner) == owner then
  return {'map', math.max(redis.call('PTTL', KEYS[1]), 1), string.sub(map, #owner + 1)}
end
return {'wait'}
