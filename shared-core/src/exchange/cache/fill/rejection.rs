//! Reason why a complete response is not stored.

use super::call_entry::MIN_UNCHECKED_BYTES;
use super::target::FillTarget;
use super::CacheFill;
use crate::cache::chain::HeightUnit;
use crate::cache::reason::Reason;
use crate::cache::vary_key::{decode_namespace_name, truncated_blake3};
use crate::jsonrpc::response::CallOutcomeSpan;
use crate::jsonrpc::{response, scan};

impl CacheFill {
    /// Whether a complete response shows that no entry of this kind can exist any more;
    /// `or_fails`: an error shows it, too.
    pub(super) fn is_proven_unstorable(&self, body: &[u8], or_fails: bool) -> bool {
        match &self.target {
            FillTarget::Call(wanted) => {
                response::parse_jsonrpc_response(body).is_ok_and(|answer| {
                    body[answer.id.clone()] == wanted.id
                        && match answer.outcome {
                            CallOutcomeSpan::Result(result) => {
                                self.classify_call_result(wanted, &body[result]).is_none()
                            }
                            CallOutcomeSpan::Error(_) => or_fails,
                        }
                })
            }
            FillTarget::Resource(resource) => {
                resource.directives.lifetime.is_none()
                    && (resource.transcoded.is_some() || scan::check_json(body).is_ok())
                    && self.classify_resource_body(resource, body).is_none()
            }
            FillTarget::Batch(_) => false,
        }
    }

    /// Returns the reason why a complete response yields no entry.
    pub(super) fn unstored_response_reason(&self, body: &[u8]) -> Reason {
        if let Some(why) = self.why.get() {
            return why;
        }
        match &self.target {
            // a node that sends long unusable results costs no second pass
            FillTarget::Call(_) if body.len() > MIN_UNCHECKED_BYTES => {
                match self.depends_on_other_api() {
                    true => Reason::OtherApi,
                    false => Reason::Result,
                }
            }
            FillTarget::Call(_) => match response::parse_jsonrpc_response(body) {
                Ok(answer) => match answer.outcome {
                    CallOutcomeSpan::Result(_) if self.depends_on_other_api() => Reason::OtherApi,
                    CallOutcomeSpan::Result(_) => Reason::Result,
                    CallOutcomeSpan::Error(_) => Reason::Error,
                },
                Err(_) => Reason::Malformed,
            },
            FillTarget::Resource(_) if self.depends_on_other_api() => Reason::OtherApi,
            FillTarget::Batch(_) | FillTarget::Resource(_) => Reason::Result,
        }
    }

    /// Whether the response is not stored because the namespace follows a node of the other API.
    pub(in crate::exchange) fn depends_on_other_api(&self) -> bool {
        match &self.target {
            FillTarget::Call(wanted) => wanted
                .prospect
                .depends_on_unfollowed_api(self.dispatch_mark()),
            // a lifetime that the node itself sets is valid in any case
            FillTarget::Resource(resource) => {
                resource.directives.lifetime.is_none()
                    && resource
                        .route
                        .depends_on_unfollowed_api(self.dispatch_mark())
            }
            FillTarget::Batch(_) => false,
        }
    }

    /// Logs once for a namespace that responses of the other API are not stored.
    pub(super) fn log_other_api_once(&self) {
        let Some(mark) = self.dispatch_mark() else {
            return;
        };
        let scope = self.scope.namespace_key_bytes();
        if !self
            .shared
            .other_api
            .should_log_namespace(&truncated_blake3(scope))
        {
            return;
        }
        let (node, api, setting) = match mark.heights {
            HeightUnit::Blocks => ("an execution node", "Beacon API", "beacon"),
            HeightUnit::Slots => ("a beacon node", "JSON-RPC API", "execution"),
        };
        let name = decode_namespace_name(scope).escape_ascii();
        self.shared.verified.queue_log_line(format!(
            "namespace \"{name}\" follows {node}: responses of the {api} that depend on the head \
             are not cached there (reason other-api); set a cache_namespace of its own for that \
             API, and a cache_head with api={setting}"
        ));
    }
}
