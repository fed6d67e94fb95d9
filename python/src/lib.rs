//! The Python extension: the bus and the codec for Python objects and numpy arrays.
