//! Tests of the chain states in replies.

use super::*;
use crate::cache::chain::{ChainState, DispatchMark};
use crate::cache::owner_event::OwnerEvent;

fn state(head: u64, epoch: u64) -> Box<ChainState> {
    let data = format!(
        "{{\"namespace\":\"{}\",\"heights\":\"blocks\",\"epoch\":{epoch},\"head\":{head},\
         \"seen\":{head},\"final\":60,\"known\":true,\"wrong\":false,\"reorgs\":[],\"since\":{epoch}}}",
        "ab".repeat(16)
    );
    match OwnerEvent::parse_owner_event(b"chain", data.as_bytes()) {
        Ok(Some(OwnerEvent::Chain { state, .. })) => state,
        other => panic!("{other:?}"),
    }
}

fn with_chain(number: u64, state: Option<Box<ChainState>>, answer: OwnerReply) -> OwnerReply {
    OwnerReply {
        chain: Some(ChainStateNumber::Number(number)),
        state: state.map(|state| (SPACE, state)),
        ..answer
    }
}

impl CalloutTestHost {
    fn mark(&self) -> Option<DispatchMark> {
        self.calls().dispatch_mark(&SPACE, self.now)
    }

    /// Passes a reply with that state and without an entry.
    fn receive_state(&mut self, number: u64, state: Option<Box<ChainState>>) {
        self.look_up_or_follow([9; 32], 90, false);
        self.send_due_callouts();
        let last = *self.made.last_key_value().unwrap().0;
        self.made.remove(&last);
        let answer = with_chain(number, state, reply_without_chain(404));
        self.calls()
            .callout_answered(&self.shared, last, answer, self.now);
        self.shared.flights.claim_wakeup(test_waiter(90));
        self.woken();
    }
}

fn tip(height: u64, epoch: u64) -> CacheEntry {
    let meta = EntryMetadata {
        class: LifetimeClass::Tip,
        follows: Some((SPACE, epoch)),
        height: Some(height),
        ..EntryMetadata::default()
    };
    entry_with("tip", meta)
}

#[test]
fn dispatch_mark_has_no_finality_while_the_state_is_unknown() {
    let mut host = CalloutTestHost::new();
    let mark = host.mark().unwrap();
    assert!(!mark.is_known && mark.last_final.is_none() && mark.head.is_none());
    host.receive_state(100, Some(state(7, 5_000)));
    let mark = host.mark().unwrap();
    assert_eq!(
        (mark.head, mark.last_final, mark.is_known),
        (Some(7), Some(60), true)
    );
    // an older state may have changed
    host.now += 1_001;
    let mark = host.mark().unwrap();
    assert_eq!(
        (mark.epoch, mark.last_final, mark.is_known),
        (5_000, None, false)
    );
    host.receive_state(100, None);
    assert!(host.mark().unwrap().is_known);
}

#[test]
fn dispatch_mark_is_none_for_a_chain_that_is_not_followed() {
    let mut host = CalloutTestHost::new();
    host.look_up_for_waiter(1);
    host.answer_oldest_callout(missing(true));
    assert!(host.mark().is_none());
    host.now += 1_001;
    assert!(!host.mark().unwrap().is_known);
}

#[test]
fn known_state_is_sent_as_its_number() {
    let mut host = CalloutTestHost::new();
    host.receive_state(100, Some(state(7, 5_000)));
    host.look_up_for_waiter(1);
    assert_eq!(host.field("sszip-chain-known"), Some("100"));
    let known = with_chain(100, None, found(&tip(7, 5_000)));
    host.answer_oldest_callout(known);
    assert_eq!(host.received_response_text(1), Some("tip".into()));
    // the report of a newer head expires entries about the former one
    host.look_up_for_waiter(2);
    host.answer_oldest_callout(with_chain(
        101,
        Some(state(8, 5_000)),
        found(&tip(7, 5_000)),
    ));
    assert!(host.lead(2).is_some());
}

#[test]
fn older_state_is_ignored_unless_another_owner_sends_it() {
    let mut host = CalloutTestHost::new();
    host.receive_state(100, Some(state(7, 5_000)));
    // two replies that cross
    host.look_up_or_follow([1; 32], 1, false);
    host.look_up_for_waiter(2);
    let (first, second) = {
        let mut tickets = host.made.keys().copied();
        (tickets.next().unwrap(), tickets.next().unwrap())
    };
    let newer = with_chain(102, Some(state(9, 5_000)), reply_without_chain(404));
    host.calls()
        .callout_answered(&host.shared, second, newer, host.now);
    let older = with_chain(101, Some(state(8, 5_000)), reply_without_chain(404));
    host.calls()
        .callout_answered(&host.shared, first, older, host.now);
    assert_eq!(host.mark().unwrap().head, Some(9));
    // its clock was set back
    host.receive_state(50, Some(state(3, 4_000)));
    assert_eq!(host.mark().unwrap().head, Some(3));
    // and one that does not follow the chain any more
    host.made.clear();
    host.look_up_or_follow([1; 32], 3, false);
    host.send_due_callouts();
    host.answer_oldest_callout(reply_without_chain(404));
    assert!(host.mark().is_none() && host.calls().followed_chains().snapshot_chains().is_empty());
}

#[test]
fn fetched_tip_entry_is_shared_only_if_the_head_is_the_same_when_stored() {
    for (now, is_shared) in [(state(7, 5_000), true), (state(8, 5_000), false)] {
        let mut host = CalloutTestHost::new();
        host.receive_state(100, Some(state(7, 5_000)));
        host.look_up_for_waiter(1);
        host.look_up_for_waiter(2);
        host.answer_oldest_callout(with_chain(100, None, missing(true)));
        let token = host.lead(1).unwrap();
        host.publish_fetched_response(token, tip(7, 5_000), 5);
        assert_eq!(host.field("sszip-chain-known"), Some("100"));
        // regardless of the status
        host.answer_oldest_callout(with_chain(101, Some(now), reply_without_chain(201)));
        assert_eq!(host.received_response_text(2).is_some(), is_shared);
    }
}

#[test]
fn chain_states_are_kept_for_a_bounded_number_of_namespaces() {
    let mut host = CalloutTestHost::new();
    for n in 0..200u8 {
        let space = [n; 16];
        let calls = Arc::clone(&host.calls);
        calls.lookup_batch_at_owner(vec![KEY], &space, test_waiter(1), host.now);
        host.now += 1;
        host.send_due_callouts();
        let answer = OwnerReply {
            chain: Some(ChainStateNumber::Number(100)),
            state: Some((space, state(7, 5_000))),
            ..reply_without_chain(200)
        };
        host.answer_oldest_callout(answer);
        calls.take_batch_entries(test_waiter(1));
    }
    assert_eq!(host.calls().followed_chains().snapshot_chains().len(), 64);
    let known = |n| {
        host.calls()
            .dispatch_mark(&[n; 16], host.now)
            .unwrap()
            .is_known
    };
    assert!(known(199) && !known(0));
}

#[test]
fn reply_without_a_valid_chain_state_is_rejected() {
    for (chain, state) in [
        (None, None),
        // a number without its state
        (Some(ChainStateNumber::Number(7)), None),
        // the state of another chain
        (
            Some(ChainStateNumber::Number(7)),
            Some(([1; 16], state(7, 5_000))),
        ),
    ] {
        let mut host = CalloutTestHost::new();
        host.look_up_for_waiter(1);
        let answer = OwnerReply {
            chain,
            state,
            ..found(&entry("1"))
        };
        host.answer_oldest_callout(answer);
        assert!(host.lead(1).is_some());
    }
}
