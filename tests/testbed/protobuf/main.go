// Command protobuf prints what crates/protobuf knows of Kubernetes' types, and objects to compare its results with.
//
//	protobuf schema
//	    the schema of all built-in types: field numbers from the `protobuf` tags, JSON names and rules from the `json` tags.
//	    The committed copy is crates/protobuf/src/kubernetes.schema (make protobuf-schema).
//	protobuf objects [--seed N] [--count N] [--small]
//	    random objects of every kind, each as a record: the length of its protobuf (4 bytes, big-endian), the protobuf as an
//	    apiserver sends it, the length of its JSON, and the JSON that an apiserver sends for what the protobuf holds.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "protobuf:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) < 2 {
		return fmt.Errorf("usage: protobuf schema | protobuf objects [--seed N] [--count N] [--small]")
	}
	kinds, err := builtinKinds()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	switch os.Args[1] {
	case "schema":
		err = writeSchema(out, kinds)
	case "objects":
		set := flag.NewFlagSet("objects", flag.ExitOnError)
		seed := set.Int64("seed", 1, "seed of the objects")
		count := set.Int("count", 5000, "number of objects")
		small := set.Bool("small", false, "few elements and short texts")
		_ = set.Parse(os.Args[2:])
		err = writeObjects(out, kinds, *seed, *count, *small)
	default:
		err = fmt.Errorf("unknown command %q; known: schema, objects", os.Args[1])
	}
	if err != nil {
		return err
	}
	return out.Flush()
}
