//! The log lines of a connection: one for each change, however often it fails in between. While it is
//! not used, another reason is a change.

use std::time::Duration;

use crate::log::LogLevel;

/// Minimum interval between lines about other reasons, in milliseconds. The first one is logged at
/// once: a closed connection is often followed by the reason why no new one can be opened.
const REASON_INTERVAL_MS: u64 = 60_000;

/// Whether a connection is used, as the log has reported it. Times are in milliseconds of the
/// client's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reported {
    /// No line has been logged.
    Nothing,
    /// The connection has been logged as used.
    Used,
    /// The connection has been logged as not used.
    Unused {
        since: u64,
        /// Whether it was used before.
        was_used: bool,
        /// The reason that was logged last.
        reason: String,
        /// Time from which on another reason is logged.
        next_reason: u64,
    },
}

/// The source of the log lines of one connection.
#[derive(Debug)]
pub(super) struct AvailabilityLog {
    /// Beginning of all lines.
    subject: String,
    /// The effect of an unused connection.
    effect: &'static str,
    reported: Reported,
}

impl AvailabilityLog {
    pub(super) fn new(subject: String, effect: &'static str) -> Self {
        Self {
            subject,
            effect,
            reported: Reported::Nothing,
        }
    }

    /// Returns the line to log when the connection is used from `now` on. `connect_time`: the time
    /// that the connection took, if it is new.
    pub(super) fn line_when_used(
        &mut self,
        now: u64,
        connect_time: Option<Duration>,
    ) -> Option<(LogLevel, String)> {
        let line = match self.reported {
            Reported::Used => return None,
            Reported::Unused {
                since,
                was_used: true,
                ..
            } => format!("used again after {}", format_ms(now.saturating_sub(since))),
            Reported::Nothing | Reported::Unused { .. } => match connect_time {
                Some(time) => format!("connected ({} ms)", time.as_millis()),
                None => "used".to_owned(),
            },
        };
        self.reported = Reported::Used;
        Some((LogLevel::Notice, format!("{}: {line}", self.subject)))
    }

    /// Returns the line to log when the connection is not used from `now` on. `pause_ms`: the least
    /// time until it is used again, if it is known.
    pub(super) fn line_when_unused(
        &mut self,
        now: u64,
        pause_ms: Option<u64>,
        reason: &str,
    ) -> Option<(LogLevel, String)> {
        match &mut self.reported {
            Reported::Unused {
                reason: logged,
                next_reason,
                ..
            } => {
                if logged == reason || now < *next_reason {
                    return None;
                }
                reason.clone_into(logged);
                *next_reason = now.saturating_add(REASON_INTERVAL_MS);
            }
            reported => {
                *reported = Reported::Unused {
                    since: now,
                    was_used: *reported == Reported::Used,
                    reason: reason.to_owned(),
                    next_reason: now,
                };
            }
        }
        let pause = pause_ms.map_or_else(String::new, |pause| {
            format!(" for at least {}", format_ms(pause))
        });
        let (subject, effect) = (&self.subject, self.effect);
        Some((
            LogLevel::Error,
            format!("{subject}: not used{pause}: {reason}; {effect}"),
        ))
    }
}

fn format_ms(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} s", ms / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_log() -> AvailabilityLog {
        AvailabilityLog::new("fleet".into(), "the effect")
    }

    fn text(line: Option<(LogLevel, String)>) -> Option<String> {
        line.map(|(_, text)| text)
    }

    #[test]
    fn changes_are_logged_once_each() {
        let mut log = new_log();
        let connect_time = Some(Duration::from_millis(12));
        assert_eq!(
            log.line_when_used(0, connect_time),
            Some((LogLevel::Notice, "fleet: connected (12 ms)".into()))
        );
        assert_eq!(log.line_when_used(1, connect_time), None);
        assert_eq!(
            log.line_when_unused(5_000, Some(1_049), "the reason"),
            Some((
                LogLevel::Error,
                "fleet: not used for at least 1.0 s: the reason; the effect".into()
            ))
        );
        assert_eq!(log.line_when_unused(6_000, None, "the reason"), None);
        assert_eq!(
            text(log.line_when_unused(6_100, None, "another reason")),
            Some("fleet: not used: another reason; the effect".into())
        );
        assert_eq!(log.line_when_unused(6_200, None, "the reason"), None);
        assert!(log.line_when_unused(66_100, None, "the reason").is_some());
        assert_eq!(
            text(log.line_when_used(67_400, None)),
            Some("fleet: used again after 62 s".into())
        );
    }

    #[test]
    fn first_connection_is_logged_as_such_after_failed_attempts() {
        let mut log = new_log();
        assert_eq!(
            text(log.line_when_unused(10, None, "refused")),
            Some("fleet: not used: refused; the effect".into())
        );
        assert_eq!(log.line_when_unused(20, None, "refused"), None);
        assert_eq!(
            text(log.line_when_used(30, Some(Duration::from_millis(3)))),
            Some("fleet: connected (3 ms)".into())
        );
        assert!(log.line_when_unused(40, None, "closed").is_some());
        assert_eq!(
            text(log.line_when_used(540, Some(Duration::from_millis(3)))),
            Some("fleet: used again after 500 ms".into())
        );
    }
}
