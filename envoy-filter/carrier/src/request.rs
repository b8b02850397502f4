//! The exchange of a request, and the part of the body that its lookup needs.

use std::sync::Arc;

use sszip_core::config::RouteConfig;
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, RequestBodyAvailability, RequiredBody,
};
use sszip_core::exchange::RequestHead;

use crate::head::HostMessageHead;

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sszip_core::cache::process::ProcessResources;
    use sszip_core::config::{RouteConfig, RouteConfigBlock};
    use sszip_core::exchange::drive::{BodyLength, RequestBodyAvailability};

    use super::{announced_body_length, decide_request_head_action, start_exchange, RequestAction};
    use crate::head::tests::HeadLines;

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
    fn websocket_is_forwarded_without_a_lookup() {
        let upgrade = [("upgrade", "websocket"), ("connection", "upgrade")];
        assert_eq!(action_of("GET", &upgrade, false), RequestAction::Forward);
    }
}
