"""The few statistics that benchmarks need, in numpy; scipy serves as oracle in the tests."""
