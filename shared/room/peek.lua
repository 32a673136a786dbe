-- What the tick must know of this Redis.
-- KEYS as in join.lua, 6 list. ARGV: none.
-- Returns {identity, generation, phase, whole, block identity, next number,
--          numbers left, people in the draw, bytes of the list}
local meta = redis.call('HMGET', KEYS[1], 'generation', 'phase')
local block = redis.call('HMGET', KEYS[4], 'id', 'next', 'last', 'spare', 'spare_last')
local left = 0
if block[1] then
  left = tonumber(block[3]) - tonumber(block[2]) + 1
  if block[4] then
    left = left + tonumber(block[5]) - tonumber(block[4]) + 1
  end
end
return {identity(), meta[1] or '', meta[2] or '', redis.call('GET', KEYS[5]) or '',
  block[1] or '', tonumber(block[2] or 0), left,
  redis.call('ZCARD', KEYS[2]), redis.call('STRLEN', KEYS[6])}
