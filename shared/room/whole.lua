-- Says that the late map is whole on this Redis, if it still is the one meant.
-- KEYS: 1 whole. ARGV: 1 identity.
if identity() ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1])
return 1
