//! Tests of random sequences of steps: no request waits forever.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Want(bool),
    Leave(usize),
    Reply(usize, usize),
    Event(usize),
    Close,
    Pass(u64),
    Claim(usize),
    Refuse(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(Step::Want),
        1 => any::<usize>().prop_map(Step::Leave),
        4 => (any::<usize>(), 0usize..6).prop_map(|(which, kind)| Step::Reply(which, kind)),
        2 => (0usize..5).prop_map(Step::Event),
        1 => Just(Step::Close),
        2 => (1u64..30).prop_map(Step::Pass),
        3 => any::<usize>().prop_map(Step::Claim),
        1 => any::<bool>().prop_map(Step::Refuse),
    ]
}

/// Opens the session if the link has requested it, and returns the numbers of new lookups.
fn serve_requests(host: &mut LinkTestHost) -> Vec<u32> {
    let messages = host.take_messages();
    if messages
        .iter()
        .any(|it| matches!(it, ProcessMessage::Hello(_)))
        && host.is_open
    {
        host.last_event = 0;
        host.send(welcome(1, 0));
        host.send_lease(9999);
    }
    messages.iter().filter_map(request_id).collect()
}

proptest! {
    /// Waiting requests are woken in any sequence of the owner's actions: within the deadline if no
    /// other process fetches, and at once when the owner is gone.
    #[test]
    fn waiting_requests_are_always_woken(steps in prop::collection::vec(step(), 0..80)) {
        let mut host = LinkTestHost::connected();
        let mut waiting: BTreeSet<WaitingRequestId> = BTreeSet::new();
        let mut tokens = Vec::new();
        let mut ids = Vec::new();
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
                Step::Reply(which, kind) => {
                    ids.extend(serve_requests(&mut host));
                    if !host.is_open || ids.is_empty() {
                        continue;
                    }
                    let id = ids[which % ids.len()];
                    match kind {
                        0 => host.send(found(id)),
                        1 => host.send(missing(id, LeaseReply::Granted)),
                        2 => host.send(missing(id, LeaseReply::Pending)),
                        3 => host.send(missing(id, LeaseReply::NoLease)),
                        4 => host.receive(b"rubbish rubbish rubbish"),
                        _ => host.send(OwnerMessage::BatchEnd { id, generation: 0 }),
                    }
                }
                Step::Event(kind) => {
                    ids.extend(serve_requests(&mut host));
                    if !host.is_open {
                        continue;
                    }
                    match kind {
                        0 => host.event(SessionEvent::Filled(KEY)),
                        1 => host.event(SessionEvent::LeaseReleased(KEY)),
                        2 => host.purge_event(n as u64, PurgeEventScope::Everything),
                        3 => host.send_lease(9999),
                        _ => host.send(welcome(9, 0)),
                    }
                }
                Step::Close => {
                    if host.is_open {
                        host.break_connection();
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
                        host.finish_without_response(token);
                    }
                }
                Step::Refuse(refuses) => host.refuses = refuses,
            }
            let leads = host.shared.flights.flight_count();
            prop_assert!(tokens.len() <= leads);
        }
        // the owner ends for good: all requests are woken
        host.refuses = true;
        if host.is_open {
            host.break_connection();
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
