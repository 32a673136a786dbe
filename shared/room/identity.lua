-- Which Redis this is: the process (run_id) and its history (master_replid, new
-- with each promotion). Late numbers and "the map is whole" are bound to it: a
-- promoted replica, its old master, a server that was restarted, and a master
-- that lost its place and took it again are four different ones.
local function identity()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
    .. string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
end
