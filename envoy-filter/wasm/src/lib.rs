//! sszip as a proxy-wasm filter: the core in a sandbox. Every worker of Envoy
//! has a sandbox of its own.
//!
//! The SDK calls the filter, and the core's driver decides. A sandbox has one
//! thread and one timer, which belongs to its root; it never blocks, and
//! reaches the owner by callouts of the proxy.

mod abi;
mod config;
mod floors;
mod metrics;
mod questions;
mod root;
mod store;
mod stream;
mod timers;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

use root::Root;
use stream::Handle;

#[allow(missing_docs)] // the SDK generates it
mod start {
    proxy_wasm::main! {{
        proxy_wasm::set_root_context(|id| Box::new(crate::root::Handle::new(id)));
    }}
}

impl Context for root::Handle {
    fn on_http_call_response(&mut self, token: u32, fields: usize, length: usize, _: usize) {
        self.0.calls(self.0.id, false);
        self.0.answered(token, fields, length);
        self.0.settle(self.0.id);
    }

    fn on_done(&mut self) -> bool {
        self.0.show_nothing();
        true
    }
}

impl RootContext for root::Handle {
    fn on_configure(&mut self, length: usize) -> bool {
        Root::configure(&self.0, length)
    }

    fn on_tick(&mut self) {
        self.0.ticked();
        self.0.settle(self.0.id);
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Handle::new(id, &self.0)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Context for Handle {
    fn on_http_call_response(&mut self, token: u32, fields: usize, length: usize, _: usize) {
        self.root.calls(self.id, false);
        self.root.answered(token, fields, length);
        self.root.settle(self.id);
    }

    fn on_done(&mut self) -> bool {
        self.root.calls(self.id, false);
        self.ended();
        self.root.settle(self.id);
        true
    }
}

impl HttpContext for Handle {
    fn on_log(&mut self) {
        self.root.calls(self.id, false);
        self.logged();
        self.root.settle(self.id);
    }

    fn on_http_request_headers(&mut self, _: usize, is_all: bool) -> Action {
        self.hook(|exchange| exchange.request_head(is_all))
    }

    fn on_http_request_body(&mut self, length: usize, is_last: bool) -> Action {
        self.hook(|exchange| exchange.request_body(length, is_last))
    }

    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        self.hook(stream::Exchange::request_trailers)
    }

    fn on_http_response_headers(&mut self, _: usize, is_all: bool) -> Action {
        self.hook(|exchange| exchange.response_head(is_all))
    }

    fn on_http_response_body(&mut self, length: usize, is_last: bool) -> Action {
        self.hook(|exchange| exchange.response_body(length, is_last))
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.hook(stream::Exchange::response_trailers)
    }
}
