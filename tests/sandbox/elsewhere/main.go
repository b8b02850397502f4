// A proxy-wasm host that others have written (the emulator of Tetrate's Go SDK, which runs
// WebAssembly in wazero), for the filter that Envoy loads: it is configured, refuses what is
// wrong, and an answer that comes in pieces is compressed whole.
//
//	sandbox-host FILTER.wasm
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/proxytest"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

func main() {
	log.SetFlags(0)
	wasm, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}

	host, end := start(wasm, `{"cache_path": "/x"}`)
	expect("the wrong settings", host.StartPlugin() == types.OnPluginStartStatusFailed)
	said := strings.Join(append(host.GetCriticalLogs(), host.GetErrorLogs()...), "\n")
	expect("a line that says why: "+said, strings.Contains(said, `"cache_path" is not to be had in a sandbox`))
	end()

	host, end = start(wasm, `{"types": "application/json"}`)
	defer end()
	expect("the settings", host.StartPlugin() == types.OnPluginStartStatusOK)
	exchange(host)
}

// start begins a host with one sandbox.
func start(wasm []byte, settings string) (proxytest.HostEmulator, func()) {
	// StartVM is left out: in this host it comes before there is a root that starts
	vm, err := proxytest.NewWasmVMContext(wasm)
	if err != nil {
		log.Fatal(err)
	}
	options := proxytest.NewEmulatorOption().WithVMContext(vm).
		WithPluginConfiguration([]byte(settings)).
		WithProperty([]string{"response", "code_details"}, []byte("via_upstream"))
	host, reset := proxytest.NewHostEmulator(options)
	// Envoy's own, for its access log; this host wants a byte in return
	host.RegisterForeignFunction("declare_property", func([]byte) []byte { return []byte{0} })
	return host, func() {
		reset()
		vm.Close()
	}
}

func exchange(host proxytest.HostEmulator) {
	id := host.InitializeHttpContext()
	action := host.CallOnRequestHeaders(id, [][2]string{
		{":method", "GET"}, {":path", "/"}, {":authority", "node"}, {"accept-encoding", "gzip"},
	}, true)
	expect("the request goes on", action == types.ActionContinue)
	expect("the node is asked for its own bytes",
		field(host.GetCurrentRequestHeaders(id), "accept-encoding") == "identity")

	plain := []byte(`["` + strings.Repeat("0123456789abcdef", 3000) + `"]`)
	action = host.CallOnResponseHeaders(id, [][2]string{
		{":status", "200"}, {"content-type", "application/json"},
		{"content-length", strconv.Itoa(len(plain))},
	}, false)
	expect("the head waits", action == types.ActionPause)
	for rest := plain; len(rest) > 0; {
		piece := rest[:min(len(rest), 10_000)]
		rest = rest[len(piece):]
		action = host.CallOnResponseBody(id, piece, len(rest) == 0)
		expect("the body waits for its end", (action == types.ActionContinue) == (len(rest) == 0))
	}

	sent, head := host.GetCurrentResponseBody(id), host.GetCurrentResponseHeaders(id)
	// Of its length nothing is asked: this host keeps numbers where the sandbox had them, and
	// that memory has been used again by now.
	expect("it is gzip", field(head, "content-encoding") == "gzip")
	reader, err := gzip.NewReader(bytes.NewReader(sent))
	if err != nil {
		log.Fatal(err)
	}
	decoded, err := io.ReadAll(reader)
	expect("it is what the node has sent", err == nil && bytes.Equal(decoded, plain))
	host.CompleteHttpContext(id)
}

func field(head [][2]string, name string) string {
	for _, one := range head {
		if one[0] == name {
			return one[1]
		}
	}
	return ""
}

func expect(what string, is bool) {
	if !is {
		log.Fatal(fmt.Sprintf("%s: %s: not so", os.Args[0], what))
	}
}

// Debian 12's Go has no such function of its own.
func min(one, other int) int {
	if one < other {
		return one
	}
	return other
}
