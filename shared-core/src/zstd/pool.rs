//! A pool of contexts, because making one takes longer than compressing a small body.
//!
//! One pool serves the process, like the pool of libdeflate's compressors, and is limited by the
//! memory of idle contexts. Any context can be used at any level: it grows if it must.

use std::sync::{Mutex, MutexGuard};

use super::context::{ContextError, ZstdContext, MAX_CONTEXT_BYTES};
use crate::lock::lock_ignoring_poison;

/// Maximum number of bytes of idle contexts: one of the largest.
const MAX_IDLE_BYTES: usize = MAX_CONTEXT_BYTES;

static CONTEXT_POOL: Mutex<Vec<IdleContext>> = Mutex::new(Vec::new());

struct IdleContext {
    context: ZstdContext,
    /// Memory of the context in bytes.
    size: usize,
}

/// Runs `code` with a context from the pool, or a new one; `None` if memory is refused. A context
/// that failed or panicked is not returned to the pool.
pub(super) fn run_with_pooled_context<T>(
    code: impl FnOnce(&mut ZstdContext) -> Result<T, ContextError>,
) -> Option<T> {
    let idle = lock_context_pool().pop();
    let mut context = match idle {
        Some(idle) => idle.context,
        None => ZstdContext::new()?,
    };
    let result = code(&mut context).ok()?;
    drop(return_context(context));
    Some(result)
}

/// Returns a context to the pool, from which the latest is taken first. The result is the contexts
/// without room, to be freed outside the lock.
fn return_context(context: ZstdContext) -> Vec<IdleContext> {
    let size = context.context_size();
    let mut pool = lock_context_pool();
    pool.push(IdleContext { context, size });
    let mut room = MAX_IDLE_BYTES;
    let remaining = pool
        .iter()
        .rev()
        .take_while(|idle| match room.checked_sub(idle.size) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        })
        .count();
    let beyond = pool.len() - remaining;
    pool.drain(..beyond).collect()
}

/// Locks the pool. A panic never leaves the list half-changed.
fn lock_context_pool() -> MutexGuard<'static, Vec<IdleContext>> {
    lock_ignoring_poison(&CONTEXT_POOL)
}

#[cfg(test)]
mod tests {
    use super::{lock_context_pool, run_with_pooled_context, MAX_IDLE_BYTES};
    use crate::zstd::context::ContextError;

    #[test]
    fn idle_contexts_are_bounded() {
        let body: Vec<u8> = (0..100_000_u32)
            .flat_map(|n| (n / 7).to_be_bytes())
            .collect();
        let body = &body;
        std::thread::scope(|scope| {
            for level in [1, 3, 6, 12, 19] {
                for _ in 0..4 {
                    scope.spawn(move || {
                        let mut output = Vec::with_capacity(body.len());
                        let fits = run_with_pooled_context(|context| {
                            context.compress_frame(body, level, &mut output)
                        });
                        assert_eq!(fits, Some(true));
                    });
                }
            }
        });
        let mut size = 0;
        for idle in lock_context_pool().iter() {
            assert_eq!(idle.size, idle.context.context_size());
            size += idle.size;
        }
        assert!(size <= MAX_IDLE_BYTES, "{size} bytes idle");
    }

    #[test]
    fn failure_of_a_context_is_none_and_the_next_call_succeeds() {
        let result = run_with_pooled_context(|_| Err::<(), _>(ContextError));
        assert!(result.is_none());
        let mut output = Vec::with_capacity(100);
        let fits =
            run_with_pooled_context(|context| context.compress_frame(b"abc", 1, &mut output));
        assert_eq!(fits, Some(true));
    }
}
