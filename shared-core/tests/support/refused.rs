//! Allocations that are refused at each point in turn.

use std::fmt::{Debug, Display};

use sszip_core::allocator::faulty::run_with_refused_allocations;

/// Repeats `run` with all allocations of `from` bytes or more refused, each time after one more of
/// them, until none is refused: its result is `expected`, or an error that reports refused memory.
/// Returns the number of errors.
pub fn repeat_with_refusals<T: PartialEq + Debug, E: Display>(
    from: usize,
    expected: &T,
    run: impl Fn() -> Result<T, E>,
) -> usize {
    let mut failures = 0;
    for passed in 0..10_000 {
        let (made, refusals) = run_with_refused_allocations(from, passed, &run);
        match made {
            Ok(made) => assert_eq!(made, *expected),
            Err(error) => {
                let error = error.to_string();
                assert!(refusals.all > 0 && error.contains("memory"), "{error}");
                failures += 1;
            }
        }
        if refusals.all == 0 {
            return failures;
        }
    }
    panic!("it never ends");
}
