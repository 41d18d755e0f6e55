"""Real services on loopback ports, and a proxy in front of them that counts requests and injects faults.

They are started by whoever needs them (`with s3_server(folder) as s3: …`) and always end with the block.
"""
