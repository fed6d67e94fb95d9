"""Help for the tests of applications: a bus in memory, a fault injector, fixtures."""
