"""Models over HTTP: one client for three protocols, prices, a gateway for sandboxes, a scripted server for tests.

Everything here needs the extra `models` (httpx) but `errors`, `messages`, `prices` and the scripted server.
"""
