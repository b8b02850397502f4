//! JSON-RPC 2.0 as Ethereum nodes use it: requests, responses, and cache keys.
//!
//! No module decodes a value: calls and responses are spans of the text that contains them. A
//! request that a node might read differently than this module is rejected, which costs a lookup
//! in the cache and never a response.
//!
//! | module       | concern                                                |
//! |--------------|--------------------------------------------------------|
//! | [`scan`]     | the grammar of JSON and the positions of its parts (RFC 8259) |
//! | [`request`]  | one call or a batch of calls                           |
//! | [`response`] | one response or a batch of responses                   |
//! | [`elements`] | a batch response as clients read it                    |
//! | [`outline`]  | the positions of a response's parts, found at its ends |
//! | [`known`]    | names of methods that nodes have                       |
//! | [`methods`]  | the method table: classes and block references         |
//! | [`said`]     | method rows that operators write                       |
//! | [`block`]    | the block that a call names                            |
//! | [`shown`]    | the blocks that a response shows                       |
//! | [`key`]      | cache keys and canonical params                        |
//! | [`plausible`] | plausibility checks of results                        |
//! | [`shallow`]  | the depth of a text, counted by its brackets           |
//! | [`sketch`]   | the parts of a call that may be in the key cache       |
//! | [`stateful`] | methods whose responses can't be stored                |
//! | [`unsettled`] | results that are still incomplete                     |
//! | [`patterns`], [`rules`], [`limit`] | rules about methods              |

pub mod block;
pub mod elements;
pub(crate) mod ids;
pub mod key;
pub mod known;
pub mod limit;
pub mod methods;
pub mod outline;
pub mod patterns;
mod plain;
pub mod plausible;
pub mod request;
pub mod response;
pub mod rules;
pub mod said;
pub mod scan;
pub mod shallow;
pub mod shown;
pub mod sketch;
pub mod stateful;
mod string;
pub mod unsettled;
