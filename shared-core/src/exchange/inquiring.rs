//! What is asked of the node in the background: what its chain is like.
//!
//! The host makes that request like one that updates the cache, and nobody waits for
//! it: what is not known is what it always was, and a value that is none of its type
//! shows that it was wrong.

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

/// What is read of it may take so many times its length for a moment.
const TIMES: usize = 48;

/// For so long the host awaits an answer. Milliseconds.
const PATIENCE: u64 = 1_000;

/// A longer name of a node is no name.
const LONGEST_NAME: usize = 512;

/// What the body, or the client's conditions, have in a head.
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
    /// The chain behind the place, as far as is known.
    pub(super) fn chain(&self) -> Chain {
        let said = self.config.ssz.preset;
        Chain {
            preset: said.or(self.learnt.preset).unwrap_or(Preset::Mainnet),
            digests: self.learnt.digests.clone(),
        }
    }

    /// Whether somebody has said its preset.
    pub(super) fn knows_preset(&self) -> bool {
        self.config.ssz.preset.or(self.learnt.preset).is_some()
    }

    /// What was learnt of the node holds for this request. What it needs, and of whom:
    /// `url` is where the request goes, where each has its own.
    fn recall(&mut self, url: Option<&[u8]>) -> Option<(Needs, Vec<u8>)> {
        let needs = self.needs()?;
        let name = self.name_of_node(url.unwrap_or_default())?;
        self.learnt = self.nodes().of(&name);
        Some((needs, name))
    }

    /// The same, of nodes that were learnt of apart from others of these settings.
    pub(super) fn recall_from(&mut self, nodes: &Learnt) {
        self.nodes = Some(nodes.clone());
        self.recall(None);
    }

    /// All that was learnt of the nodes that there are here.
    fn nodes(&self) -> &Learnt {
        self.nodes.as_ref().unwrap_or(&self.config.ssz.learnt)
    }

    /// What the node is to be asked in the background, and awaits the answer to that.
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

    /// What tells the nodes of a place apart: where its requests go, and what is before
    /// the route in their paths. `None`: another path can't be asked there.
    fn name_of_node(&self, url: &[u8]) -> Option<Vec<u8>> {
        let scheme = url.windows(3).position(|three| three == b"://");
        let host = scheme.map_or(url, |at| &url[at + 3..]);
        if host.iter().any(|byte| matches!(byte, b'/' | b'?')) {
            // each request's own path is in it
            return None;
        }
        let prefix = self.request.prefix.as_deref()?;
        let name = [url, b"\n", prefix].concat();
        (name.len() <= LONGEST_NAME).then_some(name)
    }

    /// Of one that inquires: the path that is to be asked instead of that one.
    pub(super) fn path_of_inquiry(&self, path: &[u8]) -> Option<Vec<u8>> {
        let inquiry = self.inquiry.as_ref()?;
        beacon::beside(path, inquiry.question.route())
    }

    /// For how long the answer is awaited, in milliseconds; `None`: there is no question.
    pub(super) fn patience(&self) -> Option<u64> {
        self.inquiry.as_ref().map(|_| PATIENCE)
    }

    /// Of one that inquires: whether an answer with that head is one.
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

    /// All of the answer is there, at that time.
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
