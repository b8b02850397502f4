//! Connections of the owner and of the command line: TCP, TLS and Unix sockets.
//!
//! | module            | concern                                  |
//! |-------------------|------------------------------------------|
//! | [`connector`]     | connections to the endpoint of a URL     |
//! | [`host_resolver`] | resolution of host names                 |
//! | [`tls`]           | trusted authorities, client certificates |
//! | [`error_text`]    | an error with its causes as text         |

pub mod connector;
pub mod error_text;
pub mod host_resolver;
pub mod tls;
