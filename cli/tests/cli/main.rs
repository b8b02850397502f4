//! The command line as a user runs it: input, output and exit code.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod check;
mod check_envoy_rules;
mod check_namespaces;
mod check_rules;
mod doctor;
mod errors;
mod files;
mod fleet;
mod inspect;
mod manuals;
mod purge;
mod scripted_proxy;
mod status;
mod support;
mod updates;
mod values;
mod warm;
mod warm_resume;
