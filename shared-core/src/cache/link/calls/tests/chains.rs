//! What answers say of chains.

use super::*;
use crate::cache::chain::{Mark, State};
use crate::cache::told::Event;

fn state(head: u64, epoch: u64) -> Box<State> {
    let data = format!(
        "{{\"namespace\":\"{}\",\"heights\":\"blocks\",\"epoch\":{epoch},\"head\":{head},\
         \"seen\":{head},\"final\":60,\"known\":true,\"wrong\":false,\"reorgs\":[],\"since\":{epoch}}}",
        "ab".repeat(16)
    );
    match Event::read(b"chain", data.as_bytes()) {
        Ok(Some(Event::Chain { state, .. })) => state,
        other => panic!("{other:?}"),
    }
}

fn of_chain(number: u64, state: Option<Box<State>>, answer: Answer) -> Answer {
    Answer {
        chain: Some(Told::Number(number)),
        state: state.map(|state| (SPACE, state)),
        ..answer
    }
}

impl Host {
    fn mark(&self) -> Option<Mark> {
        self.calls().mark(&SPACE, self.now)
    }

    /// The owner says that; nothing else comes of it.
    fn hear(&mut self, number: u64, state: Option<Box<State>>) {
        self.ask([9; 32], 90, false);
        self.run();
        let last = *self.made.last_key_value().unwrap().0;
        self.made.remove(&last);
        let answer = of_chain(number, state, said(404));
        self.calls().answered(&self.shared, last, answer, self.now);
        self.shared.flights.claim(at(90));
        self.woken();
    }
}

fn tip(height: u64, epoch: u64) -> Entry {
    let meta = Meta {
        class: Class::Tip,
        follows: Some((SPACE, epoch)),
        height: Some(height),
        ..Meta::default()
    };
    of_meta("tip", meta)
}

#[test]
fn as_long_as_nothing_is_known_nothing_is_final() {
    let mut host = Host::new();
    let mark = host.mark().unwrap();
    assert!(!mark.is_known && mark.last_final.is_none() && mark.head.is_none());
    host.hear(100, Some(state(7, 5_000)));
    let mark = host.mark().unwrap();
    assert_eq!(
        (mark.head, mark.last_final, mark.is_known),
        (Some(7), Some(60), true)
    );
    // what was heard long ago may have changed
    host.now += 1_001;
    let mark = host.mark().unwrap();
    assert_eq!(
        (mark.epoch, mark.last_final, mark.is_known),
        (5_000, None, false)
    );
    host.hear(100, None);
    assert!(host.mark().unwrap().is_known);
}

#[test]
fn a_chain_that_nobody_follows_is_none() {
    let mut host = Host::new();
    host.want(1);
    host.answer(missing(true));
    assert!(host.mark().is_none());
    host.now += 1_001;
    assert!(!host.mark().unwrap().is_known);
}

#[test]
fn what_is_known_is_said_and_not_told_again() {
    let mut host = Host::new();
    host.hear(100, Some(state(7, 5_000)));
    host.want(1);
    assert_eq!(host.field("sszip-chain-known"), Some("100"));
    let known = of_chain(100, None, found(&tip(7, 5_000)));
    host.answer(known);
    assert_eq!(host.given(1), Some("tip".into()));
    // with the news of a head comes the end of what was true of an older one
    host.want(2);
    host.answer(of_chain(101, Some(state(8, 5_000)), found(&tip(7, 5_000))));
    assert!(host.lead(2).is_some());
}

#[test]
fn older_news_is_none_and_that_of_another_owner_is() {
    let mut host = Host::new();
    host.hear(100, Some(state(7, 5_000)));
    // two answers that cross
    host.ask([1; 32], 1, false);
    host.want(2);
    let (first, second) = {
        let mut tickets = host.made.keys().copied();
        (tickets.next().unwrap(), tickets.next().unwrap())
    };
    let newer = of_chain(102, Some(state(9, 5_000)), said(404));
    host.calls().answered(&host.shared, second, newer, host.now);
    let older = of_chain(101, Some(state(8, 5_000)), said(404));
    host.calls().answered(&host.shared, first, older, host.now);
    assert_eq!(host.mark().unwrap().head, Some(9));
    // its clock was put back
    host.hear(50, Some(state(3, 4_000)));
    assert_eq!(host.mark().unwrap().head, Some(3));
    // and one that does not follow it any more
    host.made.clear();
    host.ask([1; 32], 3, false);
    host.run();
    host.answer(said(404));
    assert!(host.mark().is_none() && host.calls().chains().all().is_empty());
}

#[test]
fn what_was_fetched_is_of_the_chain_that_the_owner_knows_when_it_takes_it() {
    for (now, is_shared) in [(state(7, 5_000), true), (state(8, 5_000), false)] {
        let mut host = Host::new();
        host.hear(100, Some(state(7, 5_000)));
        host.want(1);
        host.want(2);
        host.answer(of_chain(100, None, missing(true)));
        let token = host.lead(1).unwrap();
        host.publish(token, tip(7, 5_000), 5);
        assert_eq!(host.field("sszip-chain-known"), Some("100"));
        // whatever it says of the entry
        host.answer(of_chain(101, Some(now), said(201)));
        assert_eq!(host.given(2).is_some(), is_shared);
    }
}

#[test]
fn of_namespaces_without_number_only_some_are_known() {
    let mut host = Host::new();
    for n in 0..200u8 {
        let space = [n; 16];
        let calls = Arc::clone(&host.calls);
        calls.ask_for_all(vec![KEY], &space, at(1), host.now);
        host.now += 1;
        host.run();
        let answer = Answer {
            chain: Some(Told::Number(100)),
            state: Some((space, state(7, 5_000))),
            ..said(200)
        };
        host.answer(answer);
        calls.claim_all(at(1));
    }
    assert_eq!(host.calls().chains().all().len(), 64);
    let known = |n| host.calls().mark(&[n; 16], host.now).unwrap().is_known;
    assert!(known(199) && !known(0));
}

#[test]
fn what_no_owner_says_of_a_chain_is_no_answer() {
    for (chain, state) in [
        (None, None),
        // a number without what it stands for
        (Some(Told::Number(7)), None),
        // of another one
        (Some(Told::Number(7)), Some(([1; 16], state(7, 5_000)))),
    ] {
        let mut host = Host::new();
        host.want(1);
        let answer = Answer {
            chain,
            state,
            ..found(&entry("1"))
        };
        host.answer(answer);
        assert!(host.lead(1).is_some());
    }
}
