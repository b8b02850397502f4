//! The parts that the two Envoy hosts share: the dynamic module and the proxy-wasm filter.
//!
//! | module         | concern                                                     |
//! |----------------|-------------------------------------------------------------|
//! | [`settings`]   | settings of filters and routes, from JSON                   |
//! | [`head`]       | heads of messages, and changes to them                      |
//! | [`request`]    | the exchange of a request, and the body that it needs       |
//! | [`lookup`]     | the properties of a route by which responses are looked up  |
//! | [`response`]   | heads of responses, and the step that follows them          |
//! | [`encode`]     | streaming compression                                       |
//! | [`purge`]      | purge requests, and their lines in the log                  |
//! | [`pipelining`] | the order of responses to pipelined requests                |
//! | [`background`] | requests for which no client waits                          |
//!
//! A host implements [`head::HostMessageHead`], [`head::EnvoyHeaderMap`] and
//! [`settings::HostSpecificSettings`] over its interface of Envoy. No interface of Envoy is named
//! here.

pub mod background;
pub mod encode;
pub mod head;
pub mod lookup;
pub mod pipelining;
pub mod purge;
pub mod request;
pub mod response;
pub mod settings;
