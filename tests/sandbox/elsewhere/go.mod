// A release that Debian 12's Go can build.
module sszip/tests/sandbox/elsewhere

go 1.19

require github.com/tetratelabs/proxy-wasm-go-sdk v0.24.0

require github.com/tetratelabs/wazero v1.7.2 // indirect
