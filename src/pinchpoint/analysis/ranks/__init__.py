"""Many ranks of one job: each recording becomes a small summary, and the summaries one answer.

``summarise`` maps a trace to a :class:`RankSummary`; ``reduce`` takes the summaries of all ranks,
which it reads one at a time and more than once, to a :class:`Job`. Nothing here opens a file.
"""
