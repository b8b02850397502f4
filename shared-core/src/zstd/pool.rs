//! The pool of contexts. Any context can be used at any level: it grows if it must.

use super::context::{ContextError, ZstdContext, MAX_CONTEXT_BYTES};
use crate::idle_pool::IdlePool;

/// Idle contexts: one of the largest, or several.
static CONTEXT_POOL: IdlePool<ZstdContext> = IdlePool::new(MAX_CONTEXT_BYTES);

/// Runs `code` with a context from the pool, or a new one; `None` if memory is refused. A context
/// that failed or panicked is not returned to the pool.
pub(super) fn run_with_pooled_context<T>(
    code: impl FnOnce(&mut ZstdContext) -> Result<T, ContextError>,
) -> Option<T> {
    let mut context = match CONTEXT_POOL.take_idle(|_| true) {
        Some(context) => context,
        None => ZstdContext::new()?,
    };
    let result = code(&mut context).ok()?;
    let size = context.context_size();
    CONTEXT_POOL.return_idle(context, size);
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::{run_with_pooled_context, CONTEXT_POOL};
    use crate::zstd::context::{ContextError, MAX_CONTEXT_BYTES};

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
        let idle = CONTEXT_POOL.idle_bytes();
        assert!(idle <= MAX_CONTEXT_BYTES, "{idle} bytes idle");
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
