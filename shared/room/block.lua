-- Brings a block of late numbers that was reserved in Postgres.
-- KEYS: 1 block. ARGV: identity it was reserved for, first, last.
-- A block is added behind what is there, as its continuation or as one spare.
-- One for another Redis, or one that would put a later person before an earlier
-- one, is dropped: a gap, never a repeat. Returns 1 when taken.
if identity() ~= ARGV[1] then
  return 0
end
local first, last = tonumber(ARGV[2]), tonumber(ARGV[3])
local block = redis.call('HMGET', KEYS[1], 'id', 'next', 'last', 'spare', 'spare_last')
local fresh = block[1] ~= ARGV[1]
local old = tonumber(block[5] or block[3] or 0)
if not fresh and first <= old then
  return 0
end
if fresh or (not block[4] and tonumber(block[2]) > old) then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'id', ARGV[1], 'next', ARGV[2], 'last', ARGV[3])
elseif first == old + 1 then
  redis.call('HSET', KEYS[1], block[4] and 'spare_last' or 'last', ARGV[3])
elseif not block[4] then
  redis.call('HSET', KEYS[1], 'spare', ARGV[2], 'spare_last', ARGV[3])
else
  return 0
end
return 1
