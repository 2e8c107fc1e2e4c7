"""What the allocator's recording says: timeline, owners, growth, waste, what-ifs."""
