//! Background requests that probe the capabilities of a node's chain.
//!
//! The host sends the request like a background update, and no client waits for it: unknown
//! capabilities keep their defaults, and a value that doesn't match its type shows that a default
//! was wrong.

use std::sync::Arc;

use super::head::{Coding, Field, HeadEdit, Response, ResponseHead};
use super::inquiry::{Inquiry, MOST};
use super::machine::Exchange;
use super::phase::Phase;
use super::transitions::{Event, State};
use crate::beacon;
use crate::config::learnt::{Learnt, Needs};
use crate::gzip::inflate::gunzip;
use crate::memory;
use crate::ssz::Preset;
use crate::transcode::chain::Chain;
use crate::transcode::{Negotiated, JSON};

/// Bytes that decoding a response may allocate for a moment, for each byte of its length.
const TIMES: usize = 48;

/// Time that the host waits for the response to a probe. Milliseconds.
const PATIENCE: u64 = 1_000;

/// Maximum length of a node's name. Bytes. Nodes with a longer name are not probed.
const LONGEST_NAME: usize = 512;

/// Headers that describe the client's body or its conditions, removed from a probe.
const OF_THE_CLIENT: [&str; 10] = [
    "Content-Type",
    "Content-Encoding",
    "Eth-Consensus-Version",
    "Expect",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Range",
];

impl Exchange {
    /// The chain behind the route, as far as it is known.
    pub(super) fn chain(&self) -> Chain {
        let configured = self.config.ssz.preset;
        Chain {
            preset: configured.or(self.learnt.preset).unwrap_or(Preset::Mainnet),
            digests: self.learnt.digests.clone(),
        }
    }

    /// Whether the preset is configured or was detected.
    pub(super) fn knows_preset(&self) -> bool {
        self.config.ssz.preset.or(self.learnt.preset).is_some()
    }

    /// Loads the node's capabilities for this request. Returns the capabilities that the request
    /// needs and the name of the node. `url` is the target of the request, where requests differ in
    /// it.
    fn recall(&mut self, url: Option<&[u8]>) -> Option<(Needs, Vec<u8>)> {
        let needs = self.needs()?;
        let name = self.name_of_node(url.unwrap_or_default())?;
        self.learnt = self.nodes().of(&name);
        Some((needs, name))
    }

    /// Loads the capabilities from `nodes`, which are kept apart from the capabilities in the
    /// settings.
    pub(super) fn recall_from(&mut self, nodes: &Learnt) {
        self.nodes = Some(nodes.clone());
        self.recall(None);
    }

    /// Capabilities of all nodes that this exchange may reach.
    fn nodes(&self) -> &Learnt {
        self.nodes.as_ref().unwrap_or(&self.config.ssz.learnt)
    }

    /// Returns the exchange for a probe of the node, if a capability is unknown and due to be
    /// probed.
    pub(super) fn inquire(&mut self, url: Option<&[u8]>, now: u64) -> Option<Self> {
        let (needs, name) = self.recall(url)?;
        let question = self.nodes().question(&name, needs, now)?;
        let mut inquiry = Self::new(Arc::clone(&self.config));
        let moved = inquiry.move_on(Event::Update, |_| Phase::AwaitingUpdate);
        moved.ok()?;
        let kept = [("Accept", JSON), ("Accept-Encoding", b"identity")];
        let set = kept.map(|(name, value)| HeadEdit::set(name, value));
        let removed = OF_THE_CLIENT.map(HeadEdit::remove);
        inquiry.nodes = self.nodes.clone();
        inquiry.upstream_edits = set.into_iter().chain(removed).collect();
        inquiry.inquiry = Some(Box::new(Inquiry {
            name,
            question,
            coding: Coding::Identity,
            body: None,
        }));
        Some(inquiry)
    }

    fn needs(&self) -> Option<Needs> {
        let request = &self.request;
        let is_asked = self.state() == State::AwaitingHead && request.prefix.is_some();
        let needs = Needs {
            preset: self.config.ssz.preset.is_none(),
            digests: request.ssz.is_some_and(Negotiated::names_forks),
        };
        (is_asked && (needs.preset || needs.digests)).then_some(needs)
    }

    /// Returns the name that distinguishes the nodes of a route: the target of the requests, and
    /// the part of their paths before the Beacon API's route. `None` if no other path can be
    /// requested at this target.
    fn name_of_node(&self, url: &[u8]) -> Option<Vec<u8>> {
        let scheme = url.windows(3).position(|three| three == b"://");
        let host = scheme.map_or(url, |at| &url[at + 3..]);
        if host.iter().any(|byte| matches!(byte, b'/' | b'?')) {
            // the target contains the path of one request
            return None;
        }
        let prefix = self.request.prefix.as_deref()?;
        let name = [url, b"\n", prefix].concat();
        (name.len() <= LONGEST_NAME).then_some(name)
    }

    /// Returns the path to probe in place of `path`, if this exchange is a probe.
    pub(super) fn path_of_inquiry(&self, path: &[u8]) -> Option<Vec<u8>> {
        let inquiry = self.inquiry.as_ref()?;
        beacon::beside(path, inquiry.question.route())
    }

    /// Time that the host waits for the response to a probe, in milliseconds; `None` if this
    /// exchange is no probe.
    pub(super) fn patience(&self) -> Option<u64> {
        self.inquiry.as_ref().map(|_| PATIENCE)
    }

    /// Whether a response with this head can be evaluated as the response to the probe.
    pub(super) fn judge_inquiry<'a, I>(&mut self, head: &ResponseHead<I>) -> bool
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        let Some(inquiry) = &mut self.inquiry else {
            return false;
        };
        inquiry.coding = Response::read(head.fields.clone()).coding;
        let length = head.content_length.unwrap_or(0);
        let is_answer =
            head.status == 200 && inquiry.coding != Coding::Other && length <= MOST as u64;
        inquiry.body = is_answer.then(Vec::new);
        is_answer
    }

    /// Evaluates the complete response to the probe, at the time `now`.
    pub(super) fn learn(&mut self, now: u64) {
        let Phase::Passing(held) = &self.phase else {
            return;
        };
        let declared = held.declared.map(|declared| declared as u64);
        if declared.is_some_and(|declared| declared != self.received) {
            return;
        }
        let Some(inquiry) = self.inquiry.take() else {
            return;
        };
        let body = match (inquiry.body, inquiry.coding) {
            (Some(body), Coding::Identity) => body,
            (Some(coded), Coding::Gzip) => gunzip(&coded, MOST).unwrap_or_default(),
            _ => return,
        };
        if !memory::is_short() && memory::is_there(body.len() * TIMES) {
            let nodes = self.nodes();
            nodes.learn(&inquiry.name, inquiry.question, &body, now);
        }
    }
}
