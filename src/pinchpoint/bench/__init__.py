"""Measurements that can be trusted: timing, interleaved comparison, gates, experiments.

A run (one fresh process) is the sample; a step is not. Everything that decides rests on that.
"""
