-- Puts orders into a queue and takes them out: all of one call or nothing.
-- KEYS: the queue, its tombstones and, where the queue is whole (not a shard of
-- it), the sale's hash of modes.
-- ARGV: the queue's name; above how many it is due to be split; for how many
-- microseconds a tombstone stays; then for each order four: what, number, score,
-- seen. `+` stands an order in unless it left a moment ago, so that a late call
-- brings no ghost back; `=` does so too over the very tombstone that the caller
-- has seen before it asked Postgres; `-` takes it out and leaves a tombstone.
-- Answers the mode, how many stand there and how many orders changed.
local mode = 'whole'
if KEYS[3] then
  mode = redis.call('HGET', KEYS[3], ARGV[1]) or ''
  if mode == 'split' then
    return {mode, 0, 0} -- the shards have everything
  end
  if mode == '' then
    mode = 'whole'
    redis.call('HSET', KEYS[3], ARGV[1], mode)
  end
end
local at = redis.call('TIME')
local now = at[1] * 1000000 + at[2]
local changed = 0
for i = 4, #ARGV, 4 do
  local what, number = ARGV[i], ARGV[i + 1]
  if what == '-' then
    changed = changed + redis.call('ZREM', KEYS[1], number)
    redis.call('ZADD', KEYS[2], string.format('%.0f', now), number)
  else
    local left = redis.call('ZSCORE', KEYS[2], number)
    if left and what == '=' and tonumber(left) == tonumber(ARGV[i + 3]) then
      redis.call('ZREM', KEYS[2], number)
      left = false
    end
    if not left then
      changed = changed + redis.call('ZADD', KEYS[1], 'CH', ARGV[i + 2], number)
    end
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - ARGV[3]))
redis.call('EXPIRE', KEYS[2], math.ceil(ARGV[3] / 1000000) + 60)
local n = redis.call('ZCARD', KEYS[1])
if KEYS[3] and mode == 'whole' and n > tonumber(ARGV[2]) then
  mode = 'due'
  redis.call('HSET', KEYS[3], ARGV[1], mode)
end
return {mode, n, changed}
