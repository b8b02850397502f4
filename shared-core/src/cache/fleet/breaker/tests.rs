use proptest::collection::vec;
use proptest::prelude::*;

use super::{
    BreakerChange, BreakerState, CircuitBreaker, OpenReason, Outcome, Permit, MAX_OPEN_MS,
    MAX_TIMEOUTS, MIN_RESULTS, PROBE_MS, STABLE_MS, WINDOW_MS,
};

fn new_breaker() -> CircuitBreaker {
    CircuitBreaker::new(7)
}

/// Records time-outs until the breaker opens, and returns the time for which it is open.
fn open_by_timeouts(breaker: &mut CircuitBreaker, now: u64) -> u64 {
    for _ in 1..MAX_TIMEOUTS {
        assert_eq!(breaker.record(now, Outcome::Timeout), None);
    }
    match breaker.record(now, Outcome::Timeout) {
        Some(BreakerChange::Opened {
            open_ms,
            reason: OpenReason::Timeouts,
        }) => open_ms,
        other => panic!("{other:?}"),
    }
}

/// Sends the due probe, which fails, and returns the time for which the breaker is open.
fn fail_probe(breaker: &mut CircuitBreaker, now: u64) -> u64 {
    assert_eq!(breaker.permit(now), Permit::Probe);
    match breaker.record(now, Outcome::Timeout) {
        Some(BreakerChange::Opened {
            open_ms,
            reason: OpenReason::Probe,
        }) => open_ms,
        other => panic!("{other:?}"),
    }
}

#[test]
fn breaker_opens_after_timeouts_in_a_row() {
    let mut breaker = new_breaker();
    for round in 0..3 {
        for _ in 1..MAX_TIMEOUTS {
            assert_eq!(breaker.record(round, Outcome::Timeout), None);
        }
        assert_eq!(breaker.permit(round), Permit::Closed);
        assert_eq!(breaker.record(round, Outcome::Success), None);
    }
    let open_ms = open_by_timeouts(&mut breaker, 100_000);
    assert!((800..=1_200).contains(&open_ms), "{open_ms}");
    assert_eq!(breaker.state(), BreakerState::Open);
    let end = 100_000 + open_ms;
    assert_eq!(breaker.permit(end - 1), Permit::Open);
    assert_eq!((breaker.wait_ms(end - 1), breaker.wait_ms(end)), (1, 0));
}

#[test]
fn breaker_opens_when_half_of_many_results_of_a_second_are_failures() {
    let half = MIN_RESULTS / 2;
    let mut breaker = new_breaker();
    for n in 0..u64::from(half) {
        assert_eq!(breaker.record(n * 10, Outcome::Success), None);
    }
    for n in 1..u64::from(half) {
        assert_eq!(breaker.record(100 + n * 10, Outcome::Failure), None);
    }
    assert!(matches!(
        breaker.record(300, Outcome::Failure),
        Some(BreakerChange::Opened {
            reason: OpenReason::Failures,
            ..
        })
    ));
}

#[test]
fn breaker_stays_closed_when_failures_are_fewer_or_spread_over_time() {
    let mut breaker = new_breaker();
    for n in 0..1_000 {
        // two of five
        let outcome = match n % 5 {
            0 | 2 => Outcome::Failure,
            _ => Outcome::Success,
        };
        assert_eq!(breaker.record(n * 7, outcome), None, "{n}");
    }
    let mut breaker = new_breaker();
    for n in 0..1_000 {
        let now = n * (2 * WINDOW_MS / u64::from(MIN_RESULTS));
        assert_eq!(breaker.record(now, Outcome::Failure), None, "{n}");
    }
}

#[test]
fn refusal_opens_the_breaker_at_once() {
    let mut breaker = new_breaker();
    assert_eq!(breaker.record(0, Outcome::Success), None);
    assert!(matches!(
        breaker.record(1, Outcome::Refusal),
        Some(BreakerChange::Opened {
            reason: OpenReason::Refusal,
            ..
        })
    ));
}

#[test]
fn successful_probe_closes_the_breaker() {
    let mut breaker = new_breaker();
    let probe = 1_000 + open_by_timeouts(&mut breaker, 1_000);
    assert_eq!(breaker.permit(probe), Permit::Probe);
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    assert_eq!(breaker.permit(probe), Permit::Open);
    assert_eq!(
        breaker.record(probe + 5, Outcome::Success),
        Some(BreakerChange::Closed {
            after_ms: probe + 5 - 1_000
        })
    );
    assert_eq!(breaker.permit(probe + 5), Permit::Closed);
    // the time-outs before the probe are forgotten
    for _ in 1..MAX_TIMEOUTS {
        assert_eq!(breaker.record(probe + 6, Outcome::Timeout), None);
    }
}

#[test]
fn open_time_doubles_with_failed_probes_up_to_its_maximum() {
    let mut breaker = new_breaker();
    let mut now = 1_000;
    now += open_by_timeouts(&mut breaker, now);
    for expected in [2_000, 4_000, 8_000, 16_000, MAX_OPEN_MS, MAX_OPEN_MS] {
        let open_ms = fail_probe(&mut breaker, now);
        let range = expected * 8 / 10..=expected * 12 / 10;
        assert!(range.contains(&open_ms), "{open_ms}, expected {expected}");
        now += open_ms;
    }
    assert_eq!(breaker.permit(now), Permit::Probe);
    assert_eq!(
        breaker.record(now, Outcome::Success),
        Some(BreakerChange::Closed {
            after_ms: now - 1_000
        })
    );
}

#[test]
fn open_time_is_the_shortest_again_once_the_breaker_was_stable() {
    for (closed_ms, expected) in [(STABLE_MS - 1, 2_000), (STABLE_MS, 1_000)] {
        let mut breaker = new_breaker();
        let mut now = 1_000;
        now += open_by_timeouts(&mut breaker, now);
        assert_eq!(breaker.permit(now), Permit::Probe);
        breaker.record(now, Outcome::Success);
        let open_ms = open_by_timeouts(&mut breaker, now + closed_ms);
        let range = expected * 8 / 10..=expected * 12 / 10;
        assert!(range.contains(&open_ms), "{open_ms}, expected {expected}");
    }
}

#[test]
fn abandoned_probe_is_followed_by_another_probe() {
    let mut breaker = new_breaker();
    let now = 1_000 + open_by_timeouts(&mut breaker, 1_000);
    assert_eq!(breaker.permit(now), Permit::Probe);
    assert_eq!(breaker.record(now, Outcome::Abandoned), None);
    assert_eq!(breaker.permit(now), Permit::Probe);
    // without a result
    assert_eq!(breaker.permit(now + PROBE_MS - 1), Permit::Open);
    assert_eq!(breaker.permit(now + PROBE_MS), Permit::Probe);
    assert_eq!(breaker.record(0, Outcome::Abandoned), None);
    let mut closed = new_breaker();
    for _ in 0..100 {
        assert_eq!(closed.record(0, Outcome::Abandoned), None);
    }
    assert_eq!(closed.permit(0), Permit::Closed);
}

#[test]
fn late_results_do_not_change_an_open_breaker() {
    let mut breaker = new_breaker();
    let open_ms = open_by_timeouts(&mut breaker, 0);
    for outcome in [Outcome::Success, Outcome::Failure, Outcome::Refusal] {
        assert_eq!(breaker.record(1, outcome), None);
    }
    assert_eq!(breaker.wait_ms(0), open_ms);
}

proptest! {
    /// At most one probe is sent at a time, and the breaker is never open for longer than its
    /// maximum: a server that works again is used again.
    #[test]
    fn open_breaker_permits_one_probe_and_always_another(
        seed in any::<u64>(),
        steps in vec((0u64..3_000, 0usize..8), 1..200),
    ) {
        let mut breaker = CircuitBreaker::new(seed);
        let (mut now, mut probe_sent) = (0, None);
        for (pause, step) in steps {
            now += pause;
            let outcome = match step {
                0 | 1 => Outcome::Success,
                2 => Outcome::Failure,
                3 => Outcome::Refusal,
                4 => Outcome::Abandoned,
                _ => Outcome::Timeout,
            };
            let is_permitted = breaker.wait_ms(now) == 0;
            let permit = breaker.permit(now);
            prop_assert_eq!(permit != Permit::Open, is_permitted);
            match permit {
                Permit::Open => {
                    prop_assert!(breaker.wait_ms(now) <= MAX_OPEN_MS * 12 / 10);
                    prop_assert!(breaker.wait_ms(now) > 0);
                }
                Permit::Probe => {
                    let last = probe_sent.replace(now);
                    prop_assert!(last.is_none_or(|last| now - last >= PROBE_MS));
                    // some probes have no result
                    if step != 7 {
                        breaker.record(now, outcome);
                        probe_sent = None;
                    }
                }
                Permit::Closed => {
                    probe_sent = None;
                    breaker.record(now, outcome);
                }
            }
        }
        now += MAX_OPEN_MS * 12 / 10;
        if breaker.permit(now) == Permit::Probe {
            breaker.record(now, Outcome::Success);
        }
        prop_assert_eq!(breaker.state(), BreakerState::Closed);
    }
}
