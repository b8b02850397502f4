//! sszip as a proxy-wasm filter: the core in a sandbox. Every worker of Envoy
//! has a sandbox of its own.
//!
//! The SDK calls the filter, and the core's driver decides. A sandbox has one
//! thread and one timer, which belongs to its root; it never blocks, and
//! reaches the owner by callouts of the proxy.

mod abi;
mod allocator;
mod config;
mod memory_share;
mod metrics;
mod probes;
mod redirect;
mod root;
mod shared_floors;
mod store;
mod stream;
mod timers;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

use root::FilterRoot;
use stream::SdkStreamContext;

#[allow(missing_docs)] // the SDK generates it
mod start {
    proxy_wasm::main! {{
        proxy_wasm::set_root_context(|id| Box::new(crate::root::SdkRootContext::new(id)));
    }}
}

impl Context for root::SdkRootContext {
    fn on_http_call_response(&mut self, token: u32, fields: usize, length: usize, _: usize) {
        self.0.begin_proxy_call(false);
        self.0.handle_callout_response(token, fields, length);
        self.0.finish_proxy_call(self.0.id);
    }

    fn on_done(&mut self) -> bool {
        self.0.remove_sandbox_gauge_share();
        self.0.end();
        true
    }
}

impl RootContext for root::SdkRootContext {
    fn on_configure(&mut self, length: usize) -> bool {
        self.0.begin_proxy_call(false);
        FilterRoot::read_configuration(&self.0, length)
    }

    fn on_queue_ready(&mut self, queue: u32) {
        match queue {
            // of `abi::call_root_context`
            0 => self.0.send_callouts(),
            _ => {
                self.0.handle_root_queue_post(queue);
                self.0.finish_proxy_call(self.0.id);
            }
        }
    }

    fn on_tick(&mut self) {
        self.0.handle_root_context_timer();
        self.0.finish_proxy_call(self.0.id);
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(SdkStreamContext::new(id, &self.0)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Context for SdkStreamContext {
    fn on_http_call_response(&mut self, token: u32, fields: usize, length: usize, _: usize) {
        self.root.begin_proxy_call(false);
        self.root.handle_callout_response(token, fields, length);
        self.root.finish_proxy_call(self.id);
    }

    fn on_done(&mut self) -> bool {
        self.root.begin_proxy_call(false);
        self.release_stream();
        self.root.finish_proxy_call(self.id);
        true
    }
}

impl HttpContext for SdkStreamContext {
    fn on_log(&mut self) {
        self.root.begin_proxy_call(false);
        self.finish_and_report_exchange();
        self.root.finish_proxy_call(self.id);
    }

    fn on_http_request_headers(&mut self, _: usize, is_all: bool) -> Action {
        self.run_hook(|exchange| exchange.handle_request_head(is_all))
    }

    fn on_http_request_body(&mut self, length: usize, is_last: bool) -> Action {
        self.run_hook(|exchange| exchange.handle_request_body(length, is_last))
    }

    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        self.run_hook(stream::StreamExchange::handle_request_trailers)
    }

    fn on_http_response_headers(&mut self, count: usize, is_all: bool) -> Action {
        self.run_hook(|exchange| exchange.handle_response_head(count, is_all))
    }

    fn on_http_response_body(&mut self, length: usize, is_last: bool) -> Action {
        self.run_hook(|exchange| exchange.handle_response_body(length, is_last))
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.run_hook(stream::StreamExchange::handle_response_trailers)
    }
}
