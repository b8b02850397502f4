//! What is refused memory, at each place in turn.

use std::fmt::{Debug, Display};

use sszip_core::allocator::faulty::refusing;

/// Runs it with one more allocation of `from` bytes or more passed each time, until none is
/// refused: what it makes is `expected`, or it says that memory was refused. How often it did.
pub fn each_refused<T: PartialEq + Debug, E: Display>(
    from: usize,
    expected: &T,
    run: impl Fn() -> Result<T, E>,
) -> usize {
    let mut failures = 0;
    for passed in 0..10_000 {
        let (made, refusals) = refusing(from, passed, &run);
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
