// Decodes a JSON-RPC answer with an execution witness as a Go client does, with
// encoding/json alone, and says how long it took. Arguments: the answer, and the
// number of bytes that its nodes, codes and headers must come to.
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

// data is bytes as hex, as go-ethereum's hexutil.Bytes reads them.
type data []byte

func (d *data) UnmarshalText(text []byte) error {
	if len(text) < 2 || text[0] != '0' || text[1] != 'x' {
		return fmt.Errorf("no 0x")
	}
	*d = make([]byte, (len(text)-2)/2)
	_, err := hex.Decode(*d, text[2:])
	return err
}

type answer struct {
	Result struct {
		State   []data `json:"state"`
		Codes   []data `json:"codes"`
		Headers []data `json:"headers"`
	} `json:"result"`
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("decode FILE BYTES")
	}
	want, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	var read answer
	begin := time.Now()
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	took := time.Since(begin)
	bytes := 0
	for _, list := range [][]data{read.Result.State, read.Result.Codes, read.Result.Headers} {
		// in SSZ each has an offset, too
		for _, item := range list {
			bytes += len(item) + 4
		}
	}
	// and so has each list
	if bytes += 12; bytes != want {
		return fmt.Errorf("%d bytes, not %d", bytes, want)
	}
	fmt.Println(took.Nanoseconds())
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
