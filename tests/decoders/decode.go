// Decodes gzip members, or reads JSON, for the end-to-end tests: a 32-bit big-endian length and the
// bytes in, the same out (JSON as it was read); the length 0xffffffff and a text on error.
//
//	decode gunzip | parse_json
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
)

const failed = 0xffffffff

func gunzip(coded []byte) ([]byte, error) {
	source := bytes.NewReader(coded)
	decoder, err := gzip.NewReader(source)
	if err != nil {
		return nil, err
	}
	decoder.Multistream(false)
	decoded, err := io.ReadAll(decoder)
	if err != nil {
		return nil, err
	}
	if source.Len() != 0 {
		return nil, errors.New("bytes after the member")
	}
	return decoded, nil
}

func parseJSON(text []byte) ([]byte, error) {
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

func answer(out *bufio.Writer, decode func([]byte) ([]byte, error), coded []byte) error {
	decoded, err := decode(coded)
	if err == nil {
		return writeSized(out, decoded)
	}
	if err := binary.Write(out, binary.BigEndian, uint32(failed)); err != nil {
		return err
	}
	return writeSized(out, []byte(err.Error()))
}

func main() {
	decode := map[string]func([]byte) ([]byte, error){"gunzip": gunzip, "parse_json": parseJSON}[os.Args[1]]
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
		if err := answer(out, decode, coded); err != nil {
			log.Fatal(err)
		}
		if err := out.Flush(); err != nil {
			log.Fatal(err)
		}
	}
}
