//! The exchange of a request, and the part of the body that its lookup needs.

use std::sync::Arc;

use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, RequestBodyAvailability, RequiredBody,
};
use sszip_core::exchange::{Exchange, RequestHead};

use crate::head::{EnvoyHeaderMap, HostMessageHead};

/// Header that Envoy sets when it follows a redirect of the upstream
/// (`internal_redirect_policy`). Clients may send it, too.
pub const REDIRECTED_FROM: &str = "x-envoy-original-url";

/// The action that a host performs after it has read a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestAction {
    /// Forward the request to the upstream.
    Forward,
    /// Look the request up with this body.
    LookUp(RequestBodyAvailability<'static>),
    /// Buffer the body, then look the request up.
    BufferBody,
}

/// Starts the exchange of a request. `None`: the driver does not accept the head, and the request
/// is passed on.
pub fn start_exchange(
    config: &Arc<RouteConfig>,
    head: &impl HostMessageHead,
) -> Option<ExchangeDriver> {
    let host = head
        .header_value(":authority")
        .map(|host| (&b"host"[..], host));
    let mut driver = ExchangeDriver::new(Arc::clone(config));
    let result = driver.handle_request_head(RequestHead {
        method: head.request_method(),
        target: head.target(),
        fields: host.into_iter().chain(head.regular_headers()),
    });
    result.is_ok().then_some(driver)
}

/// Returns the length of the body that a request head announces. `is_all`: the head ends the
/// request.
pub fn announced_body_length(head: &impl HostMessageHead, is_all: bool) -> BodyLength {
    match (is_all, head.content_length()) {
        (true, _) => BodyLength::Known(0),
        (_, Some(length)) => BodyLength::Known(length),
        _ => BodyLength::Unknown,
    }
}

/// Decides the action that follows the request head. `is_all`: the head ends the request.
pub fn decide_request_head_action(
    driver: &mut ExchangeDriver,
    length: BodyLength,
    is_all: bool,
) -> RequestAction {
    const NO_BODY: RequestBodyAvailability<'static> = RequestBodyAvailability::Whole(b"");
    match driver.required_body(length) {
        RequiredBody::Nothing => RequestAction::Forward,
        RequiredBody::LookUp => RequestAction::LookUp(NO_BODY),
        RequiredBody::Body | RequiredBody::WholeBody if is_all => RequestAction::LookUp(NO_BODY),
        // the upstream must first accept the body (`proxy_100_continue`)
        RequiredBody::Body | RequiredBody::WholeBody if driver.expects_continue() => {
            RequestAction::LookUp(RequestBodyAvailability::AwaitsContinue)
        }
        RequiredBody::Body | RequiredBody::WholeBody => RequestAction::BufferBody,
    }
}

/// Edits the head of a request whose body the core's replaces: its length, and its target if the
/// core chose one.
pub fn edit_rewritten_request_head(exchange: &Exchange, headers: &impl EnvoyHeaderMap) {
    let target = exchange.upstream_request_target();
    if !target.is_empty() {
        headers.set_header(":path", Some(target));
    }
    let length = exchange.upstream_request_body().len().to_string();
    headers.set_header("content-length", Some(length.as_bytes()));
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use sszip_core::cache::process::ProcessResources;
    use sszip_core::config::{RouteConfig, RouteConfigBlock};
    use sszip_core::exchange::drive::{BodyLength, RequestBodyAvailability};

    use super::{
        announced_body_length, decide_request_head_action, edit_rewritten_request_head,
        start_exchange, RequestAction,
    };
    use crate::head::tests::{HeadLines, MemoryHeaders};
    use crate::head::EnvoyHeaderMap;

    fn config() -> Arc<RouteConfig> {
        let mut directives = RouteConfigBlock::default();
        for name in ["enable", "cache"] {
            directives
                .set_directive(name, &[b"on"])
                .expect("a valid setting");
        }
        let process = ProcessResources::default();
        process.shared.start_hot_tier(1 << 20, 1 << 20, 1);
        Arc::new(directives.resolve_route_config(process))
    }

    fn action_of(method: &str, more: &[(&str, &str)], is_all: bool) -> RequestAction {
        let mut lines = vec![(":method", method), (":path", "/"), (":authority", "a")];
        lines.extend(more);
        let head = HeadLines::new(&lines);
        let mut driver = start_exchange(&config(), &head).expect("the head is valid");
        decide_request_head_action(&mut driver, announced_body_length(&head, is_all), is_all)
    }

    #[test]
    fn body_length_is_announced_by_the_head_or_by_its_end() {
        let head = HeadLines::new(&[("content-length", "5")]);
        assert_eq!(announced_body_length(&head, false), BodyLength::Known(5));
        assert_eq!(announced_body_length(&head, true), BodyLength::Known(0));
        assert_eq!(
            announced_body_length(&HeadLines::new(&[]), false),
            BodyLength::Unknown
        );
    }

    #[test]
    fn body_is_buffered_before_the_lookup_of_a_call() {
        let json = ("content-type", "application/json");
        let buffered = action_of("POST", &[json, ("content-length", "70")], false);
        assert_eq!(buffered, RequestAction::BufferBody);
        let waits = ("expect", "100-continue");
        let awaited = action_of("POST", &[json, ("content-length", "70"), waits], false);
        let expected = RequestAction::LookUp(RequestBodyAvailability::AwaitsContinue);
        assert_eq!(awaited, expected);
        assert_eq!(action_of("POST", &[json], true), RequestAction::Forward);
    }

    #[test]
    fn head_of_a_rewritten_request_has_the_length_of_the_new_body() {
        let lines = [(":path", "/"), ("content-length", "70")];
        let headers = MemoryHeaders(RefCell::new(HeadLines::new(&lines)));
        let head = HeadLines::new(&[(":method", "POST"), (":path", "/"), (":authority", "a")]);
        let driver = start_exchange(&config(), &head).expect("the head is valid");
        let exchange = driver.available_exchange().expect("no job runs");
        edit_rewritten_request_head(exchange, &headers);
        let expected = HeadLines::new(&[(":path", "/"), ("content-length", "0")]);
        assert_eq!(headers.copy_headers(), expected);
    }

    #[test]
    fn websocket_is_forwarded_without_a_lookup() {
        let upgrade = [("upgrade", "websocket"), ("connection", "upgrade")];
        assert_eq!(action_of("GET", &upgrade, false), RequestAction::Forward);
    }
}
