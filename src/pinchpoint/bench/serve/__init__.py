"""Latency of an inference server: load against an OpenAI-compatible endpoint.

Latency counts from the time at which a request was *meant* to be sent (open loop), so a server
that stalls cannot hide it by delaying the next request.
"""
