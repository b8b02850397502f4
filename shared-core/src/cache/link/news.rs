//! What an operator should know of the owner.

use crate::cache::process::ownership::Owner;

use super::Link;

/// An owner that starts, or is replaced, is not worth a line in a log.
/// Milliseconds.
const GRACE: u64 = 3_000;

/// What has become of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It does not answer, and the node is asked instead.
    DoesNotAnswer,
    /// After that, it does.
    Answers,
}

/// What is known, and was said.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Since when it does not answer.
    down: Option<u64>,
    said: bool,
}

impl Link {
    /// What a host should put into its log; to be asked after each
    /// [`tick`](Self::tick).
    pub fn news(&self, now: u64) -> Option<News> {
        let is_up = self.is_up();
        let mut state = self.lock();
        let known = &mut state.known;
        if is_up {
            let said = std::mem::take(known).said;
            return said.then_some(News::Answers);
        }
        let down = *known.down.get_or_insert(now);
        if known.said || now.saturating_sub(down) < GRACE {
            return None;
        }
        known.said = true;
        Some(News::DoesNotAnswer)
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, News};
    use crate::cache::link::Bounds;

    #[test]
    fn it_is_said_once_each_time_and_not_at_once() {
        let link = Link::new("process".into(), Bounds::default());
        for start in [0, 50_000] {
            assert_eq!(link.news(start), None);
            assert_eq!(link.news(start + 2_999), None);
            assert_eq!(link.news(start + 3_000), Some(News::DoesNotAnswer));
            assert_eq!(link.news(start + 9_000), None);
            link.lock().up = true;
            assert_eq!(link.news(start + 10_000), Some(News::Answers));
            assert_eq!(link.news(start + 20_000), None);
            link.lock().up = false;
        }
        // one that was away for a moment only was not missed
        assert_eq!(link.news(90_000), None);
        link.lock().up = true;
        assert_eq!(link.news(91_000), None);
    }
}
