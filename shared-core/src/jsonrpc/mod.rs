//! JSON-RPC 2.0 as Ethereum nodes speak it: what a request asks for, what an
//! answer holds, and which requests may share one answer.
//!
//! Nothing here decodes a value: calls and answers are spans of the text they
//! came in. And nothing here guesses: a request that a node might read in
//! another way than this module does is refused, which costs a look-up in the
//! cache and never an answer.
//!
//! | module       | concern                                                |
//! |--------------|--------------------------------------------------------|
//! | [`scan`]     | what is JSON and where its parts are (RFC 8259)        |
//! | [`request`]  | one call or a batch of them                            |
//! | [`response`] | one answer or a batch of them                          |
//! | [`outline`]  | where an answer's parts are, if it is one               |
//! | [`known`]    | names of methods that nodes have                       |
//! | [`methods`]  | the method table: what may be stored for how long      |
//! | [`said`]     | rows of it as operators write them                     |
//! | [`block`]    | the block that a call is about                         |
//! | [`key`]      | which calls are the same call                          |
//! | [`plausible`] | results that contradict themselves                     |
//! | [`shallow`]  | whether a text is too deep to be read, by its brackets  |
//! | [`sketch`]   | where a call that was read before may stand            |
//! | [`stateful`] | methods of which nothing can be stored                 |
//! | [`unsettled`] | results that are not the last word                    |

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
