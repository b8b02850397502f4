//! Requests that may change what a GET gives (RFC 9111, 4.4).

use super::asked::Asked;
use super::found::Changing;
use crate::cache::entry::Entry;
use crate::cache::scope::Scope;
use crate::exchange::head::{Field, ResponseHead};
use crate::exchange::machine::Exchange;

impl Exchange {
    /// What this request names may be another thing when it has succeeded.
    pub(in crate::exchange) fn may_change(&mut self, asked: &Asked<'_>) {
        self.looked.changing = Some(Box::new(Changing {
            namespace: self.where_targets_are(asked),
            host: asked.host.to_ascii_lowercase(),
        }));
    }

    /// Where a target is one thing, whichever place a request for it comes to: with a host,
    /// or where the operator has named it.
    fn where_targets_are(&self, asked: &Asked<'_>) -> Vec<u8> {
        let mut scope = Scope::new();
        match self.namespace(asked) {
            Some(namespace) => scope.push(namespace),
            None => {
                scope.push(&asked.port.to_be_bytes());
                scope.push(&asked.host.to_ascii_lowercase());
            }
        }
        scope.bytes().to_vec()
    }

    /// It has succeeded, or not: what is stored of its target, and of what the
    /// answer names beside it, is out of date.
    pub(in crate::exchange) fn has_changed<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        let Some(changing) = self.looked.changing.take() else {
            return;
        };
        if !matches!(head.status, 200..=399) {
            return;
        }
        let changes = &self.config.process.shared.changes;
        changes.add(&changing.namespace, &self.request.cache.target);
        for (name, value) in head.fields.clone() {
            if name.eq_ignore_ascii_case(b"location")
                || name.eq_ignore_ascii_case(b"content-location")
            {
                if let Some(target) = own_target(value, &changing.host) {
                    changes.add(&changing.namespace, target);
                }
            }
        }
    }

    /// Whether a request has changed what an entry is of, since the node was
    /// asked for it.
    pub(in crate::exchange) fn is_changed(&self, entry: &Entry, asked: &Asked<'_>) -> bool {
        let changes = &self.config.process.shared.changes;
        if changes.last() == 0 {
            return false;
        }
        let target = &self.request.cache.target;
        changes.is_changed_since(entry.changes(), &self.where_targets_are(asked), target)
    }
}

/// Path and query of a URI on `host` (in lower case), or on none.
fn own_target<'a>(uri: &'a [u8], host: &[u8]) -> Option<&'a [u8]> {
    let uri = uri.split(|byte| *byte == b'#').next().unwrap_or(uri);
    if uri.starts_with(b"/") && !uri.starts_with(b"//") {
        return Some(uri);
    }
    let scheme = uri.iter().position(|byte| *byte == b'/')?;
    let rest = match &uri[..scheme] {
        before if before.is_empty() || before.ends_with(b":") => &uri[scheme..],
        _ => return None,
    };
    let rest = rest.strip_prefix(b"//")?;
    let path = rest.iter().position(|byte| *byte == b'/')?;
    let (authority, target) = rest.split_at(path);
    // the port is of no account: a namespace has its own
    let name = authority.rsplitn(2, |byte| *byte == b':').last()?;
    let own = host.rsplitn(2, |byte| *byte == b':').last()?;
    name.eq_ignore_ascii_case(own).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::own_target;

    #[test]
    fn only_what_is_on_the_same_host_is_named() {
        let of = |uri: &'static str| {
            own_target(uri.as_bytes(), b"a.test").map(|target| std::str::from_utf8(target).unwrap())
        };
        for uri in [
            "/x?y",
            "/x?y#z",
            "http://a.test/x?y",
            "https://A.test:80/x?y",
            "//a.test/x?y",
        ] {
            assert_eq!(of(uri), Some("/x?y"), "{uri}");
        }
        for uri in [
            "http://b.test/x",
            "//b.test/x",
            "x",
            "x/y",
            "",
            "http:",
            "http://a.test",
        ] {
            assert_eq!(of(uri), None, "{uri}");
        }
    }
}
