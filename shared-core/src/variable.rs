//! Log variables: values of an exchange for access logs, with the names that hosts use.

use std::borrow::Cow;

use crate::exchange::Exchange;
use crate::mode::Mode;

/// A value of an exchange for access logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// Mode of the response.
    Mode,
    /// Ratio of the body's length before and after compression.
    Ratio,
    /// Cache status of the response, with nginx's names.
    CacheStatus,
    /// Reason why the response is no hit, or is not stored.
    CacheReason,
    /// Key of a single response, in hexadecimal digits.
    CacheKey,
    /// Method of a single call, as written in the request, or the methods of a batch.
    RpcMethod,
    /// Number of calls in a batch.
    BatchSize,
    /// Number of calls of a batch that were answered from the cache.
    BatchHits,
    /// Number of calls that were denied.
    Denied,
}

impl Variable {
    /// All variables.
    pub const ALL: [Variable; 9] = [
        Variable::Mode,
        Variable::Ratio,
        Variable::CacheStatus,
        Variable::CacheReason,
        Variable::CacheKey,
        Variable::RpcMethod,
        Variable::BatchSize,
        Variable::BatchHits,
        Variable::Denied,
    ];

    /// Name of the variable in hosts.
    pub const fn name(self) -> &'static str {
        match self {
            Variable::Mode => "sszip_mode",
            Variable::Ratio => "sszip_ratio",
            Variable::CacheStatus => "sszip_cache_status",
            Variable::CacheReason => "sszip_cache_reason",
            Variable::CacheKey => "sszip_cache_key",
            Variable::RpcMethod => "sszip_rpc_method",
            Variable::BatchSize => "sszip_batch_size",
            Variable::BatchHits => "sszip_batch_hits",
            Variable::Denied => "sszip_denied",
        }
    }

    /// Returns the text that an access log prints; `exchange` is `None` without an exchange, and
    /// while a job has it. `None` if the variable has no value.
    pub fn text(self, exchange: Option<&Exchange>) -> Option<Cow<'_, [u8]>> {
        let Some(exchange) = exchange else {
            return (self == Variable::Mode).then(|| Mode::Off.name().as_bytes().into());
        };
        let text: Cow<'_, [u8]> = match self {
            Variable::Mode => exchange.mode().name().as_bytes().into(),
            Variable::Ratio => ratio(exchange.received_bytes(), exchange.sent_bytes())?
                .into_bytes()
                .into(),
            Variable::CacheStatus => exchange.cache_status().name().as_bytes().into(),
            Variable::CacheReason => exchange.reason().name().as_bytes().into(),
            Variable::CacheKey => const_hex::encode(exchange.cache_key()?).into_bytes().into(),
            Variable::RpcMethod => match exchange.rpc_method() {
                b"" => exchange.rpc_methods().into(),
                method => method.into(),
            },
            Variable::BatchSize => decimal(calls(exchange)?),
            Variable::BatchHits => calls(exchange).map(|_| decimal(exchange.batch_hits()))?,
            Variable::Denied => match exchange.denied() {
                0 => return None,
                calls => decimal(calls),
            },
        };
        (!text.is_empty()).then_some(text)
    }
}

/// Number of calls of a batch that is not empty.
fn calls(exchange: &Exchange) -> Option<usize> {
    exchange.batch_size().filter(|calls| *calls > 0)
}

fn decimal(number: usize) -> Cow<'static, [u8]> {
    number.to_string().into_bytes().into()
}

/// Returns the ratio with two digits after the point, rounded; `None` before anything is sent.
fn ratio(received: u64, sent: u64) -> Option<String> {
    let hundredths =
        (u128::from(received) * 100 + u128::from(sent) / 2).checked_div(sent.into())?;
    Some(format!("{}.{:02}", hundredths / 100, hundredths % 100))
}

#[cfg(test)]
mod tests {
    use super::{ratio, Variable};

    #[test]
    fn ratio_is_rounded_to_hundredths() {
        for (received, sent, text) in [
            (0, 7, "0.00"),
            (408, 100, "4.08"),
            (2, 3, "0.67"),
            (1995, 1000, "2.00"),
            (u64::MAX, 1, "18446744073709551615.00"),
        ] {
            assert_eq!(ratio(received, sent).as_deref(), Some(text));
        }
        assert_eq!(ratio(7, 0), None);
    }

    #[test]
    fn mode_is_the_only_variable_without_an_exchange() {
        for variable in Variable::ALL {
            let text = variable.text(None);
            let expected = (variable == Variable::Mode).then_some(&b"off"[..]);
            assert_eq!(text.as_deref(), expected, "{}", variable.name());
        }
    }
}
