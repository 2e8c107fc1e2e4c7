# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled form of one replay in ``simulate.py``; tests hold the two together."""

import numpy as np

from libc.stdint cimport int64_t, uint8_t


def run(arrays, times, clocks, Py_ssize_t steps, int64_t window_ns, int64_t before_ns, int passes):
    """Completion of each step in each pass, after the last one of the pass before: rows of passes.

    ``arrays`` are those of ``simulate.constants``, ``times`` those that changes alter: host time
    before and in each node, time of each operation, whether it is dropped, and what a node does not
    wait for: 1 the device, 2 its batch. ``clocks`` of lanes and streams are changed.
    """
    cdef const int64_t[::1] lane = arrays[0]
    cdef const int64_t[::1] waits_for = arrays[1]
    cdef const int64_t[::1] tail = arrays[2]
    cdef const int64_t[::1] ready = arrays[3]
    cdef const int64_t[::1] first_op = arrays[4]
    cdef const int64_t[::1] node_step = arrays[5]
    cdef const uint8_t[::1] is_mark = arrays[6]
    cdef const int64_t[::1] stream = arrays[7]
    cdef const int64_t[::1] latency = arrays[8]
    cdef const int64_t[::1] bubble = arrays[9]
    cdef const int64_t[::1] after = arrays[10]
    cdef const int64_t[::1] after_ns = arrays[11]
    cdef const int64_t[::1] gap = times[0]
    cdef const int64_t[::1] own = times[1]
    cdef const int64_t[::1] duration = times[2]
    cdef const uint8_t[::1] dropped = times[3]
    cdef const uint8_t[::1] free = times[4]
    cdef int64_t[::1] lanes = clocks[0]
    cdef int64_t[::1] streams = clocks[1]
    completions_out = np.zeros((passes, steps), np.int64)
    ends = np.zeros(stream.shape[0], np.int64)
    cdef int64_t[:, ::1] done = completions_out
    cdef int64_t[::1] op_end = ends
    cdef Py_ssize_t node, op, step, nodes = lane.shape[0]
    cdef int number
    cdef int64_t begin, start, end, until, last = before_ns
    with nogil:
        for number in range(passes):
            for node in range(nodes):
                begin = lanes[lane[node]] + gap[node]
                if ready[node] and not free[node] & 2 and ready[node] + number * window_ns > begin:
                    begin = ready[node] + number * window_ns
                step = node_step[node]
                if is_mark[node] and begin > done[number, step]:
                    done[number, step] = begin
                for op in range(first_op[node], first_op[node + 1]):
                    start = streams[stream[op]] + (0 if dropped[op] else bubble[op])
                    if begin + latency[op] > start:
                        start = begin + latency[op]
                    # An operation further on has not ended in this pass, and is not waited for.
                    if after[op] >= 0 and after[op] < op and not dropped[op]:
                        if op_end[after[op]] + after_ns[op] > start:
                            start = op_end[after[op]] + after_ns[op]
                    op_end[op] = start + duration[op]
                    streams[stream[op]] = op_end[op]
                    if op_end[op] > done[number, step]:
                        done[number, step] = op_end[op]
                end = begin + own[node]
                if waits_for[node] >= 0 and waits_for[node] < first_op[node + 1]:
                    until = op_end[waits_for[node]] + tail[node]
                    if not free[node] & 1 and until > end:
                        end = until
                if end > lanes[lane[node]]:
                    lanes[lane[node]] = end
            # A step that the host ends before the device has ended the one before ends after that.
            for step in range(steps):
                if done[number, step] < last:
                    done[number, step] = last
                last = done[number, step]
    return completions_out
