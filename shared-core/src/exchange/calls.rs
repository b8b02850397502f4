//! Where the answers to calls would be stored, and whether they may be.

use std::sync::Arc;

use super::Exchange;
use crate::cache::freshness::{Prospect, Valid};
use crate::cache::memo::{Hashed, Locked, Memo, Spelling};
use crate::cache::scope::Scope;
use crate::cache::Key;
use crate::jsonrpc::key::Keys;
use crate::jsonrpc::request::Call;

/// A call whose answer may be stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) key: Key,
    pub(super) prospect: Prospect,
    /// It was found in the memo.
    remembered: bool,
}

/// Judges the calls of one request.
#[derive(Debug)]
pub(super) struct Calls<'a> {
    valid: &'a Arc<Valid>,
    scope: &'a Scope,
    hashed: Hashed<'a>,
    memo: &'a Memo,
    /// Made for the first call that is not remembered.
    keys: Option<Keys>,
}

impl<'a> Calls<'a> {
    pub(super) fn new(exchange: &'a Exchange, scope: &'a Scope) -> Self {
        let config = &exchange.config;
        let memo = &config.process.tier.memo;
        Self {
            valid: &config.cache.valid,
            scope,
            hashed: memo.hashed(scope.bytes()),
            memo,
            keys: None,
        }
    }

    /// Where the answer to a call would be, if it may be stored.
    pub(super) fn place(&mut self, call: &Call<'_>) -> Option<Place> {
        let known = self.remembered(&self.memo.lock(), call);
        known.or_else(|| self.judge(call))
    }

    /// The same of each call of a batch that wants an answer.
    pub(super) fn places(&mut self, calls: &[Call<'_>]) -> Vec<Option<Place>> {
        let mut places: Vec<Option<Place>> = Vec::with_capacity(calls.len());
        let memo = self.memo.lock();
        let known = |call: &Call<'_>| call.id.and_then(|_| self.remembered(&memo, call));
        places.extend(calls.iter().map(known));
        // others need it meanwhile: what follows may take long
        drop(memo);
        for (call, place) in calls.iter().zip(&mut places) {
            if place.is_none() && call.id.is_some() {
                *place = self.judge(call);
            }
        }
        places
    }

    fn remembered(&self, memo: &Locked<'_>, call: &Call<'_>) -> Option<Place> {
        let (key, prospect) = memo.find(self.valid, &self.spelling(call))?;
        Some(Place {
            key,
            prospect,
            remembered: true,
        })
    }

    fn judge(&mut self, call: &Call<'_>) -> Option<Place> {
        let prospect = Prospect::of(call.method, call.params, self.valid)?;
        let keys = self.keys.get_or_insert_with(|| self.scope.keys());
        let key = keys.key(call.method, call.params).ok()?.0;
        Some(Place {
            key,
            prospect,
            remembered: false,
        })
    }

    /// The call was a hit.
    pub(super) fn remember(&self, call: &Call<'_>, place: &Place) {
        if !place.remembered {
            let found = (place.key, place.prospect);
            self.memo
                .lock()
                .keep(self.valid, &self.spelling(call), found);
        }
    }

    fn spelling<'b>(&'b self, call: &Call<'b>) -> Spelling<'b> {
        Spelling {
            scope: self.hashed,
            method: call.method,
            params: call.params,
        }
    }
}
