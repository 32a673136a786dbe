-- One try at a code: counted before it is compared. Gives the kept hash, or
-- nothing when there is none or the tries are used up.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
if redis.call('HINCRBY', KEYS[1], 'tries', 1) > tonumber(ARGV[1]) then
  redis.call('DEL', KEYS[1])
  return false
end
return redis.call('HGET', KEYS[1], 'code')
