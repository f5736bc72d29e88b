//! Tests of the manager room that are too long to stand beside the code.

mod pod_references;
mod reflect;
