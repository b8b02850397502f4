//! What an operator should know of the owner.

use crate::times::owner_outage_grace;

/// What has become of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It does not answer, and the node is asked instead.
    DoesNotAnswer,
    /// Something answers that is no owner of this version, and so is the node.
    IsAnother,
    /// After that, it does.
    Answers,
}

impl News {
    /// Whether something is wrong.
    pub fn is_bad(self) -> bool {
        self != Self::Answers
    }

    /// For people; it goes on from the owner's name.
    pub fn text(self) -> &'static str {
        match self {
            Self::DoesNotAnswer => "does not answer, the node is asked instead",
            Self::IsAnother => {
                "answers as no owner of this version does, the node is asked instead"
            }
            Self::Answers => "answers again",
        }
    }
}

/// What is known, and was said.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Since when it does not answer.
    down: Option<u64>,
    said: bool,
}

impl Known {
    /// What is to be said of an owner that is reached, or not.
    pub(super) fn news(&mut self, is_up: bool, now: u64) -> Option<News> {
        if is_up {
            let said = std::mem::take(self).said;
            return said.then_some(News::Answers);
        }
        let down = *self.down.get_or_insert(now);
        if self.said || now.saturating_sub(down) < owner_outage_grace() {
            return None;
        }
        self.said = true;
        Some(News::DoesNotAnswer)
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, News};

    #[test]
    fn it_is_said_once_each_time_and_not_at_once() {
        let mut known = Known::default();
        for start in [0, 50_000] {
            assert_eq!(known.news(false, start), None);
            assert_eq!(known.news(false, start + 2_999), None);
            assert_eq!(known.news(false, start + 3_000), Some(News::DoesNotAnswer));
            assert_eq!(known.news(false, start + 9_000), None);
            assert_eq!(known.news(true, start + 10_000), Some(News::Answers));
            assert_eq!(known.news(true, start + 20_000), None);
        }
        // one that was away for a moment only was not missed
        assert_eq!(known.news(false, 90_000), None);
        assert_eq!(known.news(true, 91_000), None);
    }
}
