//! JSON-RPC 2.0 as Ethereum nodes use it: requests, responses, and cache keys.
//!
//! No module decodes a value: calls and responses are spans of the text that contains them. A
//! request that a node might read differently than this module is rejected, which costs a lookup
//! in the cache and never a response.
//!
//! | module                | concern                                                       |
//! |-----------------------|---------------------------------------------------------------|
//! | [`scan`]              | the grammar of JSON and the positions of its parts (RFC 8259) |
//! | [`request`]           | one call or a batch of calls                                  |
//! | [`response`]          | one response or a batch of responses                          |
//! | [`batch_elements`]    | a batch response as clients read it                           |
//! | [`response_ends`]     | the positions of a response's parts, found at its ends        |
//! | [`known_methods`]     | names of methods that nodes have, and why some aren't cached  |
//! | [`methods`]           | the method table: classes and block references                |
//! | `method_row`          | the types of a row of the method table                        |
//! | `method_table`        | the rows of the method table                                  |
//! | [`method_spec`]       | method rows that operators write                              |
//! | [`block_reference`]   | the block that a call or a result names                       |
//! | [`block_range`]       | the range of blocks that a call searches, for a limit         |
//! | [`log_filter`]        | the filter of a call for logs, read strictly                  |
//! | [`receipt_logs`]      | the logs of a block that a filter matches in its receipts     |
//! | `log_bloom`           | the bloom filter of a receipt                                 |
//! | [`log_list`]          | the logs of a result, as one text in the order of their blocks |
//! | [`common_block`]      | the block to which all elements of a list belong              |
//! | [`shown_blocks`]      | the blocks that a response shows                              |
//! | [`key`]               | cache keys and canonical params                               |
//! | [`plausible`]         | plausibility checks of results                                |
//! | [`depth_check`]       | the depth of a text, counted by its brackets                  |
//! | [`call_prefix`]       | the parts of a call that may be in the key cache              |
//! | [`stateful_methods`]  | methods whose responses can't be stored                       |
//! | [`safe_methods`]      | methods that a safe request may call                          |
//! | [`incomplete_result`] | results that are still incomplete                             |
//! | [`method_patterns`]   | method names and prefixes with a value each                   |
//! | [`method_rules`]      | rules that allow, deny or limit methods                       |
//! | [`concurrency_limit`] | the calls of a rule that may be in flight                     |

pub mod batch_elements;
pub mod block_range;
pub mod block_reference;
pub mod call_prefix;
pub mod common_block;
pub mod concurrency_limit;
pub mod depth_check;
pub(crate) mod ids;
pub mod incomplete_result;
pub mod key;
pub mod known_methods;
mod log_bloom;
pub mod log_filter;
pub mod log_list;
pub mod method_patterns;
mod method_row;
pub mod method_rules;
pub mod method_spec;
mod method_table;
pub mod methods;
pub mod plausible;
pub mod receipt_logs;
pub mod request;
pub mod response;
pub mod response_ends;
pub mod safe_methods;
pub mod scan;
mod scan_error;
pub mod shown_blocks;
mod simd_scan;
pub mod stateful_methods;
mod string_escapes;
mod uncached_methods;
