//! The callouts in flight between the sandboxes and their owner: they overtake each other, are
//! lost, or receive foreign responses.

use std::collections::BTreeMap;

use sszip_core::cache::link::callouts::CalloutId;
use sszip_core::cache::link::{OwnerHealthChange, OwnerOutage};
use sszip_core::cache::owner::ClockReading;

use crate::callout_owner::{CalloutNumber, CalloutOwner, CalloutResponse};
use crate::sandbox::SimulatedSandbox;
use crate::take_nth;

/// A callout without a result.
struct OpenCallout {
    sandbox: usize,
    id: CalloutId,
    timeout_at: u64,
}

/// The sandboxes, and the messages in flight from them to the owner and back.
pub struct CalloutNetwork {
    pub sandboxes: Vec<SimulatedSandbox>,
    last_callout: CalloutNumber,
    requests: Vec<(CalloutNumber, Vec<u8>)>,
    responses: Vec<(CalloutNumber, CalloutResponse)>,
    callouts: BTreeMap<CalloutNumber, OpenCallout>,
}

impl CalloutNetwork {
    pub fn new(sandboxes: usize) -> Self {
        Self {
            sandboxes: (0..sandboxes).map(SimulatedSandbox::new).collect(),
            last_callout: 0,
            requests: Vec::new(),
            responses: Vec::new(),
            callouts: BTreeMap::new(),
        }
    }

    /// Number of the messages in flight to the owner.
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }

    /// Number of the messages in flight to the sandboxes.
    pub fn response_count(&self) -> usize {
        self.responses.len()
    }

    /// Makes the callouts of a sandbox that are due.
    pub fn send_callouts(&mut self, sandbox: usize, now: u64) {
        let SimulatedSandbox { link, shared, .. } = &self.sandboxes[sandbox];
        while let Some(callout) = link.next_callout(shared, now) {
            self.last_callout += 1;
            assert!(callout.timeout > 0 && callout.timeout <= 10_000);
            let open = OpenCallout {
                sandbox,
                id: callout.id,
                timeout_at: now + callout.timeout,
            };
            self.callouts.insert(self.last_callout, open);
            self.requests.push((self.last_callout, callout.body));
        }
        assert_ne!(link.ms_until_next_callout(now), Some(0));
        // the sandboxes and the owner have one clock, however late a message is
        let other_clock = OwnerHealthChange::Down(OwnerOutage::OtherClock);
        assert_ne!(link.take_owner_health_change(now), Some(other_clock));
    }

    /// Delivers a callout to the owner, or to Envoy, whose response is local.
    pub fn deliver_request(
        &mut self,
        which: usize,
        owner: Option<&mut CalloutOwner>,
        now: ClockReading,
    ) {
        let Some((number, body)) = take_nth(&mut self.requests, which) else {
            return;
        };
        match owner {
            Some(owner) => owner.receive_callout(number, &body, now),
            None => self.responses.push((number, (503, Vec::new()))),
        }
    }

    /// Sends responses of the owner.
    pub fn send_responses(&mut self, responses: Vec<(CalloutNumber, CalloutResponse)>) {
        self.responses.extend(responses);
    }

    pub fn deliver_response(&mut self, which: usize, now: u64) {
        if let Some((number, response)) = take_nth(&mut self.responses, which) {
            self.finish_callout(number, Some(response), now);
        }
    }

    /// Delivers another response in place of the owner's, or the beginning of it.
    pub fn deliver_damaged_response(&mut self, which: usize, now: u64) {
        let Some((number, (_, mut body))) = take_nth(&mut self.responses, which) else {
            return;
        };
        let cut = which / 8 % body.len().max(1);
        let response = match which % 4 {
            0 => (503, b"no healthy upstream".to_vec()),
            1 => (404, Vec::new()),
            2 => (200, b"garbage".to_vec()),
            _ => (200, body.drain(..cut).collect()),
        };
        self.finish_callout(number, Some(response), now);
    }

    /// Loses a message; its sender is not notified.
    pub fn lose_message(&mut self, which: usize) {
        if take_nth(&mut self.responses, which).is_none() {
            take_nth(&mut self.requests, which);
        }
    }

    /// Fails a callout: one whose message is in flight, or else the oldest.
    pub fn fail_callout(
        &mut self,
        which: usize,
        owner: Option<&mut CalloutOwner>,
        now: ClockReading,
    ) {
        if let Some((number, _)) = take_nth(&mut self.requests, which) {
            self.finish_callout(number, None, now.monotonic);
        } else if let Some((number, _)) = take_nth(&mut self.responses, which) {
            self.finish_callout(number, None, now.monotonic);
        } else if let Some(number) = self.callouts.keys().next().copied() {
            self.close_callout(number, owner, now);
        }
    }

    /// Fails the callouts that have timed out.
    pub fn fail_timed_out_callouts(
        &mut self,
        mut owner: Option<&mut CalloutOwner>,
        now: ClockReading,
    ) {
        let timed_out = self.callouts.iter();
        let timed_out = timed_out.filter(|(_, callout)| callout.timeout_at <= now.monotonic);
        let timed_out: Vec<_> = timed_out.map(|(number, _)| *number).collect();
        for number in timed_out {
            self.close_callout(number, owner.as_deref_mut(), now);
        }
    }

    /// Fails a callout, whose connection to the owner is closed.
    fn close_callout(
        &mut self,
        number: CalloutNumber,
        owner: Option<&mut CalloutOwner>,
        now: ClockReading,
    ) {
        if let Some(owner) = owner {
            owner.abandon_callout(number, now);
        }
        self.finish_callout(number, None, now.monotonic);
    }

    /// Reports the response to a callout to its sandbox; without a response, it has failed.
    fn finish_callout(
        &mut self,
        number: CalloutNumber,
        response: Option<CalloutResponse>,
        now: u64,
    ) {
        // it may have timed out
        let Some(callout) = self.callouts.remove(&number) else {
            return;
        };
        let response = response.as_ref().map(|(status, body)| (*status, &**body));
        let SimulatedSandbox { link, shared, .. } = &self.sandboxes[callout.sandbox];
        link.handle_callout_result(shared, callout.id, response, now);
    }
}
