// Reads requests as nodes in Go do: geth (rpc/json.go, rpc/http.go), what is made of it, and
// Erigon, which takes a GET's query for a call. A request is a line of JSON, and so is the
// list of the methods that it calls.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/url"
	"os"
)

type request struct {
	Method string `json:"method"`
	Query  string `json:"query"`
	Body   []byte `json:"body"`
}

type message struct {
	Version string          `json:"jsonrpc,omitempty"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
}

func calls(body []byte) []string {
	var first json.RawMessage
	if json.NewDecoder(bytes.NewReader(body)).Decode(&first) != nil {
		return nil
	}
	if first[0] != '[' {
		var one message
		// a member of another type leaves the others as they were read
		_ = json.Unmarshal(first, &one)
		return []string{one.Method}
	}
	decoder := json.NewDecoder(bytes.NewReader(first))
	_, _ = decoder.Token()
	var methods []string
	for decoder.More() {
		var one message
		if decoder.Decode(&one) != nil {
			methods = append(methods, one.Method)
			break
		}
		methods = append(methods, one.Method)
	}
	return methods
}

func main() {
	input, output := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		if json.Unmarshal(line, &asked) != nil {
			os.Exit(1)
		}
		methods := calls(asked.Body)
		if asked.Method == "GET" && len(asked.Body) == 0 {
			query, _ := url.ParseQuery(asked.Query)
			methods = append(methods, query.Get("method"))
		}
		if methods == nil {
			methods = []string{}
		}
		if output.Encode(methods) != nil {
			return
		}
	}
}
