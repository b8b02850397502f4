//! The range of blocks of `warm --blocks`.

use std::fmt;
use std::str::FromStr;

use hyper::body::Bytes;
use hyper::Method;
use serde_json::Value;

use crate::http_client::{connection_error, HttpClient};
use crate::inspect::request_headers;
use crate::server_text::printable;
use crate::target::Target;
use crate::CommandError;

/// A range of blocks or slots, as the user writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRange {
    /// From a block to an end, both included.
    FromTo(u64, RangeEnd),
    /// The newest finalized blocks, of this number.
    Last(u64),
}

/// The last block of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeEnd {
    /// The block with this number.
    Number(u64),
    /// The last finalized block at the start of the command.
    Finalized,
    /// The newest block at the start of the command.
    Latest,
}

/// The numbers of the first and the last block of a range.
pub type BlockNumbers = (u64, u64);

impl FromStr for BlockRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(count) = text.strip_prefix("last:") {
            return match parse_number(count)? {
                0 => Err("last:0 has no blocks".into()),
                count => Ok(Self::Last(count)),
            };
        }
        let (from, to) = text
            .split_once('-')
            .ok_or("expected FROM-TO, FROM-finalized, FROM-latest or last:N")?;
        let from = parse_number(from)?;
        let end = match to {
            "finalized" => RangeEnd::Finalized,
            "latest" => RangeEnd::Latest,
            to => RangeEnd::Number(parse_number(to)?),
        };
        match end {
            RangeEnd::Number(to) if to < from => Err(format!("block {to} is before block {from}")),
            end => Ok(Self::FromTo(from, end)),
        }
    }
}

/// Parses a decimal number, or a hexadecimal one with `0x`.
fn parse_number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("{text:?} is no block number"))
}

impl fmt::Display for BlockRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last(count) => write!(formatter, "last:{count}"),
            Self::FromTo(from, RangeEnd::Number(to)) => write!(formatter, "{from}-{to}"),
            Self::FromTo(from, RangeEnd::Finalized) => write!(formatter, "{from}-finalized"),
            Self::FromTo(from, RangeEnd::Latest) => write!(formatter, "{from}-latest"),
        }
    }
}

impl BlockRange {
    /// Returns the numbers of the range; queries the node for the tag of its end.
    pub async fn resolve(
        self,
        proxy: &HttpClient,
        url: &Target,
    ) -> Result<BlockNumbers, CommandError> {
        let (from, to) = match self {
            Self::FromTo(from, RangeEnd::Number(to)) => (from, to),
            Self::FromTo(from, RangeEnd::Finalized) => {
                (from, query_block_number(proxy, url, "finalized").await?)
            }
            Self::FromTo(from, RangeEnd::Latest) => {
                (from, query_block_number(proxy, url, "latest").await?)
            }
            Self::Last(count) => {
                let to = query_block_number(proxy, url, "finalized").await?;
                (to.saturating_sub(count - 1), to)
            }
        };
        match from <= to {
            true => Ok((from, to)),
            false => Err(CommandError::Usage(format!(
                "invalid --blocks {self}: the last block is {to} at present"
            ))),
        }
    }
}

async fn query_block_number(
    proxy: &HttpClient,
    url: &Target,
    tag: &str,
) -> Result<u64, CommandError> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["{tag}",false]}}"#
    );
    let headers = request_headers(&Method::POST);
    let sent = proxy.send(Method::POST, None, &headers, Bytes::from(body));
    let reply = sent.await.map_err(|error| connection_error(url, &error))?;
    let json: Option<Value> = serde_json::from_slice(&reply.body).ok();
    let text_at = |pointer| {
        json.as_ref()
            .and_then(|json| json.pointer(pointer)?.as_str())
    };
    let number = text_at("/result/number").and_then(|number| parse_number(number).ok());
    number.ok_or_else(|| {
        let cause = match text_at("/error/message") {
            Some(message) => printable(message),
            None => format!("HTTP {}", reply.status.as_u16()),
        };
        CommandError::Data(format!(
            "cannot read the number of block \"{tag}\" at {url}: {cause}; write the range as two \
             numbers"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_and_displayed() {
        for (text, expected) in [
            ("5-5", BlockRange::FromTo(5, RangeEnd::Number(5))),
            ("0-latest", BlockRange::FromTo(0, RangeEnd::Latest)),
            ("7-finalized", BlockRange::FromTo(7, RangeEnd::Finalized)),
            ("last:1000", BlockRange::Last(1_000)),
        ] {
            assert_eq!(text.parse(), Ok(expected));
            assert_eq!(expected.to_string(), text);
        }
        let hex: BlockRange = "0x10-0x1f".parse().unwrap();
        assert_eq!(hex, BlockRange::FromTo(16, RangeEnd::Number(31)));
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        for (text, expected) in [
            ("", "expected FROM-TO"),
            ("5", "expected FROM-TO"),
            ("-1000-latest", "\"\" is no block number"),
            ("9-8", "block 8 is before block 9"),
            ("1-safe", "\"safe\" is no block number"),
            ("last:0", "no blocks"),
            ("last:x", "no block number"),
            ("0-18446744073709551616", "no block number"),
        ] {
            let error = text.parse::<BlockRange>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
