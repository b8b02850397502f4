// Parses JSON for the end-to-end tests: a 32-bit big-endian length and the text in, the
// same with the value as JSON out; the length 0xffffffff and a text on error.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"log"
	"os"
)

const failed = 0xffffffff

func parsed(text []byte) ([]byte, error) {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

func writeSized(out *bufio.Writer, content []byte) error {
	if err := binary.Write(out, binary.BigEndian, uint32(len(content))); err != nil {
		return err
	}
	_, err := out.Write(content)
	return err
}

func answer(out *bufio.Writer, coded []byte) error {
	decoded, err := parsed(coded)
	if err == nil {
		return writeSized(out, decoded)
	}
	if err := binary.Write(out, binary.BigEndian, uint32(failed)); err != nil {
		return err
	}
	return writeSized(out, []byte(err.Error()))
}

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		coded := make([]byte, length)
		if _, err := io.ReadFull(in, coded); err != nil {
			log.Fatal(err)
		}
		if err := answer(out, coded); err != nil {
			log.Fatal(err)
		}
		if err := out.Flush(); err != nil {
			log.Fatal(err)
		}
	}
}
