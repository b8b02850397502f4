//! Empty: this package exists for its dependency.
