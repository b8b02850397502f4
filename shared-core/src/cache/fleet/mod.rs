//! Rules of the fleet tier: entries that the owners of several machines share on one server of the
//! Redis protocol.
//!
//! The server is not trusted: a value from it is a miss unless all checks succeed. Only entries of
//! class `immutable` are shared. Sans-I/O: no socket, no thread, no clock; crate `sszip-owner` has
//! the connections.
//!
//! | module            | concern                                                      |
//! |-------------------|--------------------------------------------------------------|
//! | [`keyring`]       | key files: names of values, tags of values and purge records |
//! | [`value`]         | format of a value, and its checks                            |
//! | [`sharing`]       | entries that are shared, and values that a chain permits     |
//! | [`reply_limit`]   | limit of the server's replies, before they are buffered      |
//! | [`breaker`]       | circuit breaker of the connections                           |
//! | [`stream_record`] | records of the stream of purges                              |
//! | [`stream_sync`]   | synchronisation with that stream                             |
//! | [`purge_log`]     | purges of all owners, compared with the positions of values  |
//! | [`own_purges`]    | purges of this owner that are not in the stream yet          |
//! | [`local_purges`]  | purges of the stream for this owner's own entries            |
//! | [`leases`]        | leases of responses that take a node long                    |

pub mod breaker;
pub mod keyring;
pub mod leases;
pub mod local_purges;
pub mod own_purges;
pub mod purge_log;
pub mod reply_limit;
pub mod sharing;
pub mod stream_record;
pub mod stream_sync;
pub mod value;
