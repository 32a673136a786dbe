-- Puts the map of this second. KEYS: its lease, the map, what is left. ARGV: our
-- token, the bytes (empty: Postgres is away), how long it is kept (ms), then
-- class and number left in turn. Nothing happens when the second is another's.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  redis.call('SET', KEYS[1], 'away', 'KEEPTTL')
  return 0
end
redis.call('SET', KEYS[2], ARGV[1] .. ARGV[2], 'PX', ARGV[3])
redis.call('DEL', KEYS[3])
for i = 4, #ARGV, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[3], ARGV[3])
return 1
