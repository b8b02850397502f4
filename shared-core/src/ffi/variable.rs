//! Values of exchanges for access logs.

use std::borrow::Cow;

use super::exchange::sszip_exchange;
use super::panic::{catch_panic_status, check_results, write_result};
use super::types::{sszip_status, sszip_str};
use crate::log_variable::LogVariable;

/// Returns the name of the log variable `number`, counted from 0. Static;
/// empty if there is no such variable.
#[no_mangle]
pub extern "C" fn sszip_variable_name(number: usize) -> sszip_str {
    match LogVariable::ALL.get(number) {
        Some(variable) => sszip_str::from_bytes(variable.log_variable_name().as_bytes()),
        None => sszip_str::ABSENT,
    }
}

/// Returns the value of the log variable `number` for the exchange; NULL
/// `exchange`: the value for a request without one. NULL `data`: the variable
/// has no value. Valid until the next call of this function or of
/// `sszip_exchange_probe_path` for the exchange, or the end of the exchange;
/// static if `exchange` is NULL.
///
/// # Errors
/// `SSZIP_STATUS_INVALID`: there is no such variable; no text is written.
///
/// # Safety
/// `exchange` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_variable(
    exchange: *mut sszip_exchange,
    number: usize,
    out: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        let Some(variable) = LogVariable::ALL.get(number) else {
            return sszip_status::SSZIP_STATUS_INVALID;
        };
        // SAFETY: the function's contract.
        let exchange = unsafe { exchange.as_mut() };
        let Some(exchange) = exchange else {
            // the values of a request without an exchange are static
            let value = match variable.log_text(None) {
                Some(Cow::Borrowed(text)) => sszip_str::from_bytes(text),
                _ => sszip_str::ABSENT,
            };
            write_result!(out, value);
            return sszip_status::SSZIP_STATUS_OK;
        };
        let text = variable.log_text(exchange.driver.available_exchange());
        let text = text.map(Cow::into_owned);
        let is_present = text.is_some();
        exchange.text = text.unwrap_or_default();
        write_result!(
            out,
            match is_present {
                true => sszip_str::from_bytes(&exchange.text),
                false => sszip_str::ABSENT,
            }
        );
        sszip_status::SSZIP_STATUS_OK
    })
}
