"""The caching allocator: lives of blocks, segments, sizes, its replay."""
