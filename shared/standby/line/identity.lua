-- Which Redis has the keys of a sale: the process and its history. A server that
-- was restarted and a promoted replica are others, and may lack what came last.
-- KEYS: any key of the sale.
return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  .. string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
