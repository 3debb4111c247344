"""A router in front of several servers, each with clusters and a store of its own (shards): one API for all.

upstream    HTTP to a shard
shards      a server as the router sees it: asked, or away since when
callers     credentials → which shards know them; a shard is sent no others
directory   which shard has a cluster or a job; what a caller last saw of a shard
question    a jobspec with its envelope, as each shard is asked it
bids        what each shard would choose → the shard that gets a submit
submits     submit, batch
answers     answers of several shards → one
router      requests → operations, by ASGI; the process of `rainbow route`
"""
