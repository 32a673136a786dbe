-- Takes people into the line of one room.
-- KEYS: 1 meta, 2 draw (account by score), 3 late (account to number),
--       4 block (of late numbers), 5 whole (whose late map is complete)
-- ARGV: 1 generation, 2 "1" when the caller knows the frozen list; then for each
--       person: account, score, want:
--         ""   a place;
--         "d"  is in the list, so needs no number unless one was taken since;
--         "<n>" joins again after the late number n (0: after a drawn place).
-- Returns {word, identity, code, number, code, number, ...}, word one of
--   open    the draw takes joins:   code 1 drawn now, 2 was drawn before
--   late    it does not any more:   code 3 new number, 4 had it before, 5 in the
--           list, 6 no number can be given now, 7 none left in the block
--   reset   the room has another generation; nothing was done
local meta = redis.call('HMGET', KEYS[1], 'generation', 'phase')
if meta[1] and meta[1] ~= ARGV[1] then
  return {'reset', ''}
end
if meta[1] and meta[2] == 'open' then
  local out = {'open', ''}
  for i = 3, #ARGV, 3 do
    local new = redis.call('ZADD', KEYS[2], 'NX', ARGV[i + 1], ARGV[i])
    out[#out + 1] = new == 1 and 1 or 2
    out[#out + 1] = 0
  end
  return out
end
local id = identity()
local out = {'late', id}
local sure = meta[2] == 'listed' and ARGV[2] == '1' and redis.call('GET', KEYS[5]) == id
local block = redis.call('HMGET', KEYS[4], 'id', 'next', 'last', 'spare', 'spare_last')
local usable = sure and block[1] == id
local at, last = tonumber(block[2]), tonumber(block[3])
local moved = false
for i = 3, #ARGV, 3 do
  local code, number = 6, 0
  if sure then
    local want = ARGV[i + 2]
    local has = tonumber(redis.call('HGET', KEYS[3], ARGV[i]) or 0)
    local after = tonumber(want)
    if usable and at > last and block[4] then
      at, last = tonumber(block[4]), tonumber(block[5])
      redis.call('HSET', KEYS[4], 'next', block[4], 'last', block[5])
      redis.call('HDEL', KEYS[4], 'spare', 'spare_last')
      block[4] = false
    end
    if has > 0 and has ~= after then
      code, number = 4, has
    elseif want == 'd' then
      code = 5
    elseif not usable or at > last then
      code = 7
    else
      code, number = 3, at
      redis.call('HSET', KEYS[3], ARGV[i], string.format('%.0f', at))
      at = at + 1
      moved = true
    end
  end
  out[#out + 1] = code
  out[#out + 1] = number
end
if moved then
  redis.call('HSET', KEYS[4], 'next', string.format('%.0f', at))
end
return out
