-- What a replica needs to know of a queue, or of one of its shards.
-- KEYS: the queue, the marker that says that it is built and, where the queue is
-- whole, the sale's hash of modes.
-- ARGV: the queue's name; how many of its head; how many samples of the rest;
-- then the numbers of orders that are watched.
-- Answers mode, marker, length, head as number and score in turn, samples as
-- rank and score in turn, and the score of each order watched ('': not there).
local mode = ''
if KEYS[3] then
  mode = redis.call('HGET', KEYS[3], ARGV[1]) or ''
end
local n = redis.call('ZCARD', KEYS[1])
local most = tonumber(ARGV[2])
local head, samples, scores = {}, {}, {}
if most > 0 then
  head = redis.call('ZRANGE', KEYS[1], 0, most - 1, 'WITHSCORES')
end
local count = tonumber(ARGV[3])
if most > 0 and n > most then
  for i = 0, count do
    local rank = math.floor(most - 1 + i * (n - most) / count)
    local one = redis.call('ZRANGE', KEYS[1], rank, rank, 'WITHSCORES')
    samples[#samples + 1] = rank
    samples[#samples + 1] = one[2]
  end
end
for i = 4, #ARGV, 1000 do
  local some = redis.call('ZMSCORE', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
  for _, score in ipairs(some) do
    scores[#scores + 1] = score or ''
  end
end
return {mode, redis.call('GET', KEYS[2]) or '', n, head, samples, scores}
