//! Compiles and runs the program of the manual's page on derived types, as a documentation test.
//! The page's links lead to the documentation of kubecache.
#![doc = include_str!("../../../src/manual/derived_types.md")]
