//! End-to-end test environment.
