"""Real services on loopback ports, and a proxy in front of them that counts requests and injects faults.

Each is a context manager (`with s3_server(folder) as s3: …`), and always ends with its block.
"""
