// Command peers is client-go's side of the benchmarks: the same objects from the same server, measured like the hub.
//
// `peers informer KIND URL` runs one shared informer. It reads commands from stdin, one per line, and answers each with
// one JSON line (see session.go). `peers index COUNT` measures an Indexer alone. `peers encode IN OUT` converts pods from
// JSON lines to length-prefixed Kubernetes protobuf for the replay server.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 3 && args[0] == "informer" {
		return serveSession(args[1], args[2])
	}
	if len(args) == 2 && args[0] == "index" {
		count, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return measureIndex(count)
	}
	if len(args) == 3 && args[0] == "encode" {
		return encode(args[1], args[2])
	}
	return fmt.Errorf("usage: peers informer json|protobuf|dynamic|metadata URL | peers index COUNT | peers encode IN OUT")
}

// encode writes each pod as in a list: without its type, and without the envelope of a single object.
func encode(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	file, err := os.Create(to + ".new")
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriterSize(file, 1<<20)
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil && err != io.EOF {
			return err
		}
		var pod corev1.Pod
		if err := json.Unmarshal(line, &pod); err != nil {
			return err
		}
		bytes, err := pod.Marshal()
		if err != nil {
			return err
		}
		if err := binary.Write(out, binary.BigEndian, uint32(len(bytes))); err != nil {
			return err
		}
		if _, err := out.Write(bytes); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}

// say writes one JSON line. It exits the process if the bench has closed the pipe.
func say(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		os.Exit(1)
	}
}
