-- A token bucket as one moment (GCRA). KEYS[1]: the bucket. ARGV: microseconds
-- a token takes, burst. Returns 0, or the microseconds until a token is there.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local each, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local wait = at - now - (burst - 1) * each
if wait > 0 then
  return wait
end
redis.call('SET', KEYS[1], string.format('%.0f', at + each), 'PX', math.ceil((at + each - now) / 1000) + 1)
return 0
