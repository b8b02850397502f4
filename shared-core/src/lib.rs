//! The sans-I/O core of sszip.
