//! Tests of random sequences of steps: no request waits forever.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Want(bool),
    Leave(usize),
    Reply(usize, usize),
    Event(usize),
    Close(usize),
    Pass(u64),
    Claim(usize),
    Refuse(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(Step::Want),
        1 => any::<usize>().prop_map(Step::Leave),
        4 => (1usize..3, 0usize..6).prop_map(|(slot, kind)| Step::Reply(slot, kind)),
        2 => (0usize..5).prop_map(Step::Event),
        1 => (0usize..3).prop_map(Step::Close),
        2 => (1u64..30).prop_map(Step::Pass),
        3 => any::<usize>().prop_map(Step::Claim),
        1 => any::<bool>().prop_map(Step::Refuse),
    ]
}

proptest! {
    /// Waiting requests are woken in any sequence of the owner's actions: within the deadline if no
    /// other process fetches, and at once when the owner is gone.
    #[test]
    fn waiting_requests_are_always_woken(steps in prop::collection::vec(step(), 0..80)) {
        let mut host = LinkTestHost::with_greeted_owner();
        let mut waiting: BTreeSet<WaitingRequestId> = BTreeSet::new();
        let mut tokens = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Want(leases) => {
                    waiting.insert(test_waiter(n + 1));
                    host.look_up_for_waiter(n + 1, leases);
                }
                Step::Leave(which) => {
                    let gone = waiting.iter().nth(which % waiting.len().max(1)).copied();
                    if let Some(gone) = gone {
                        waiting.remove(&gone);
                        host.shared.forget_waiter(gone);
                        host.shared.leave_flight(&KEY, gone);
                        host.run();
                    }
                }
                Step::Reply(slot, kind) => {
                    if !host.open.contains(&slot) {
                        continue;
                    }
                    let reply = [
                        found(),
                        missing("granted"),
                        missing("pending"),
                        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
                        b"rubbish\r\n\r\n".to_vec(),
                        DONE.to_vec(),
                    ];
                    host.receive(slot, &reply[kind]);
                }
                Step::Event(kind) => {
                    if !host.link().is_owner_reachable() {
                        continue;
                    }
                    let key = "07".repeat(32);
                    match kind {
                        0 => host.event("filled", &key),
                        1 => host.event("given-up", &key),
                        2 => host.event("purge", &format!("{{\"generation\":{n}}}")),
                        3 => host.event("lease", "{\"until\":9999}"),
                        _ => host.event("hello", "nonsense"),
                    }
                }
                Step::Close(slot) => {
                    if host.open.contains(&slot) {
                        host.break_connection(slot);
                        host.run();
                    }
                }
                Step::Pass(milliseconds) => host.pass(milliseconds),
                Step::Claim(which) => {
                    let claimant = waiting.iter().nth(which % waiting.len().max(1)).copied();
                    if let Some(turn) = claimant.and_then(|claimant| host.shared.flights.claim_wakeup(claimant)) {
                        waiting.remove(&claimant.unwrap());
                        if let FlightFollowerWakeup::Lead(token) = turn {
                            tokens.push(token);
                        }
                    } else if let Some(token) = tokens.pop() {
                        host.shared.finish_flight_and_wake(token, FlightOutcome::NotShareable);
                        host.run();
                    }
                }
                Step::Refuse(refuses) => host.refuses = refuses,
            }
            let leads = host.shared.flights.flight_count();
            prop_assert!(tokens.len() <= leads);
        }
        // the owner ends for good: all requests are woken
        host.refuses = true;
        for slot in host.open.clone() {
            host.break_connection(slot);
        }
        host.run();
        host.pass(25);
        for token in tokens {
            host.shared.finish_flight_and_wake(token, FlightOutcome::NotShareable);
        }
        for _ in 0..waiting.len() {
            for waiter in waiting.clone() {
                if let Some(turn) = host.shared.flights.claim_wakeup(waiter) {
                    waiting.remove(&waiter);
                    if let FlightFollowerWakeup::Lead(token) = turn {
                        host.shared.hand_over_flight(token);
                    }
                }
            }
        }
        prop_assert!(waiting.is_empty(), "{:?} wait", waiting);
        prop_assert!(host.shared.flights.flight_count() == 0);
    }
}
