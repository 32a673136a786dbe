-- Lowers what is left. KEYS: the hash of it. ARGV: class and number taken in
-- turn. Returns what is left in all classes, or 1 when nothing is known.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 1
end
for i = 1, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[1], ARGV[i], -ARGV[i + 1])
end
local left = 0
for _, n in ipairs(redis.call('HVALS', KEYS[1])) do
  left = left + math.max(tonumber(n), 0)
end
return left
