-- The shards of a queue have everything: from here on they are the queue. Whoever
-- has read the mode a moment ago still finds the whole queue for a minute.
-- KEYS: the queue, its tombstones, the sale's hash of modes. ARGV: its name.
if redis.call('HGET', KEYS[3], ARGV[1]) ~= 'splitting' then
  return 0
end
redis.call('HSET', KEYS[3], ARGV[1], 'split')
redis.call('EXPIRE', KEYS[1], 60)
redis.call('EXPIRE', KEYS[2], 60)
return 1
