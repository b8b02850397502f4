//! Log variables: values of an exchange for access logs, with the names that hosts use.

use std::borrow::Cow;

use crate::exchange::Exchange;
use crate::response_mode::ResponseMode;

/// A value of an exchange that the access log of a host can print, such as the cache status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogVariable {
    /// Mode of the response.
    Mode,
    /// Ratio of the body's length before and after compression.
    Ratio,
    /// Content coding that the exchange gave the body.
    Coding,
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

impl LogVariable {
    /// All variables.
    pub const ALL: [LogVariable; 10] = [
        LogVariable::Mode,
        LogVariable::Ratio,
        LogVariable::Coding,
        LogVariable::CacheStatus,
        LogVariable::CacheReason,
        LogVariable::CacheKey,
        LogVariable::RpcMethod,
        LogVariable::BatchSize,
        LogVariable::BatchHits,
        LogVariable::Denied,
    ];

    /// Name of the variable in hosts.
    pub const fn log_variable_name(self) -> &'static str {
        match self {
            LogVariable::Mode => "sszip_mode",
            LogVariable::Ratio => "sszip_ratio",
            LogVariable::Coding => "sszip_coding",
            LogVariable::CacheStatus => "sszip_cache_status",
            LogVariable::CacheReason => "sszip_cache_reason",
            LogVariable::CacheKey => "sszip_cache_key",
            LogVariable::RpcMethod => "sszip_rpc_method",
            LogVariable::BatchSize => "sszip_batch_size",
            LogVariable::BatchHits => "sszip_batch_hits",
            LogVariable::Denied => "sszip_denied",
        }
    }

    /// Returns the text that an access log prints; `exchange` is `None` without an exchange, and
    /// while a job has it. `None` if the variable has no value.
    pub fn log_text(self, exchange: Option<&Exchange>) -> Option<Cow<'_, [u8]>> {
        let Some(exchange) = exchange else {
            return (self == LogVariable::Mode)
                .then(|| ResponseMode::Off.mode_name().as_bytes().into());
        };
        let text: Cow<'_, [u8]> = match self {
            LogVariable::Mode => exchange.response_mode().mode_name().as_bytes().into(),
            LogVariable::Ratio => {
                compression_ratio(exchange.received_body_bytes(), exchange.sent_body_bytes())?
                    .into_bytes()
                    .into()
            }
            LogVariable::Coding => exchange.response_coding()?.coding_name().as_bytes().into(),
            LogVariable::CacheStatus => exchange.cache_status().name().as_bytes().into(),
            LogVariable::CacheReason => exchange.cache_reason().name().as_bytes().into(),
            LogVariable::CacheKey => const_hex::encode(exchange.cache_key()?).into_bytes().into(),
            LogVariable::RpcMethod => match exchange.rpc_method() {
                b"" => exchange.batch_method_names().into(),
                method => method.into(),
            },
            LogVariable::BatchSize => decimal_text(batch_call_count(exchange)?),
            LogVariable::BatchHits => batch_call_count(exchange)
                .map(|_| decimal_text(exchange.cached_batch_call_count()))?,
            LogVariable::Denied => match exchange.denied_call_count() {
                0 => return None,
                calls => decimal_text(calls),
            },
        };
        (!text.is_empty()).then_some(text)
    }
}

/// Number of calls of a batch that is not empty.
fn batch_call_count(exchange: &Exchange) -> Option<usize> {
    exchange.batch_size().filter(|calls| *calls > 0)
}

fn decimal_text(number: usize) -> Cow<'static, [u8]> {
    number.to_string().into_bytes().into()
}

/// Returns the ratio with two digits after the point, rounded; `None` before anything is sent.
fn compression_ratio(received: u64, sent: u64) -> Option<String> {
    let hundredths =
        (u128::from(received) * 100 + u128::from(sent) / 2).checked_div(sent.into())?;
    Some(format!("{}.{:02}", hundredths / 100, hundredths % 100))
}

#[cfg(test)]
mod tests {
    use super::{compression_ratio, LogVariable};

    #[test]
    fn ratio_is_rounded_to_hundredths() {
        for (received, sent, text) in [
            (0, 7, "0.00"),
            (408, 100, "4.08"),
            (2, 3, "0.67"),
            (1995, 1000, "2.00"),
            (u64::MAX, 1, "18446744073709551615.00"),
        ] {
            assert_eq!(compression_ratio(received, sent).as_deref(), Some(text));
        }
        assert_eq!(compression_ratio(7, 0), None);
    }

    #[test]
    fn mode_is_the_only_variable_without_an_exchange() {
        for variable in LogVariable::ALL {
            let text = variable.log_text(None);
            let expected = (variable == LogVariable::Mode).then_some(&b"off"[..]);
            assert_eq!(
                text.as_deref(),
                expected,
                "{}",
                variable.log_variable_name()
            );
        }
    }
}
