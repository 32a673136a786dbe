-- Uses a code up, once: 1 for the first caller.
if redis.call('HGET', KEYS[1], 'code') ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
