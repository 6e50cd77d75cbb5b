// Command reader runs client-go's unmodified readers against API roots, and prints the objects in their stores.
//
// Each argument is a reader: NAME=MODE,RESOURCE,URL. The modes:
//   - typed: a shared informer of the generated clientset, with its default encodings;
//   - json, protobuf: the same, with JSON or protobuf only;
//   - dynamic, metadata: shared informers of these clients;
//   - reflector: a Reflector with a store that is keyed by UID.
//
// The resource is `pods`, `deployments.v1.apps` or similar. KUBE_FEATURE_WatchListClient switches streaming lists.
//
// Commands on stdin, one per line, each answered by one JSON line: `dump` prints all readers, `list NAME URL TOKEN CA`
// lists the objects of a reader's resource from another server, with the reader's client. It exits at the end of stdin.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func main() {
	token := flag.String("token", "", "bearer token of the readers")
	ca := flag.String("ca", "", "file of the CA of the readers' servers")
	log := flag.String("log", os.DevNull, "file for client-go's log")
	flag.Parse()
	if err := run(*token, *ca, *log, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func run(token, ca, log string, arguments []string) error {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	klog.LogToStderr(false)
	klog.SetOutput(file)
	readers := map[string]*reader{}
	for _, argument := range arguments {
		spec, err := parseSpec(argument)
		if err != nil {
			return err
		}
		readers[spec.name], err = start(spec, clientConfig(spec.url, token, ca))
		if err != nil {
			return fmt.Errorf("%s: %w", argument, err)
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := command(readers, strings.Fields(lines.Text()))
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// command executes one command line.
func command(readers map[string]*reader, words []string) (any, error) {
	switch {
	case len(words) == 1 && words[0] == "dump":
		dumps := map[string]dump{}
		for name, reader := range readers {
			dumps[name] = reader.dump()
		}
		return dumps, nil
	case len(words) == 5 && words[0] == "list":
		reader, ok := readers[words[1]]
		if !ok {
			return nil, fmt.Errorf("no reader %q", words[1])
		}
		return list(context.Background(), reader.spec, clientConfig(words[2], words[3], words[4]))
	default:
		return nil, fmt.Errorf("unknown command %q; known: dump, list NAME URL TOKEN CA", words)
	}
}

// spec is a reader as given on the command line.
type spec struct {
	name, mode, url string
	resource        schema.GroupVersionResource
}

func parseSpec(argument string) (spec, error) {
	name, rest, found := strings.Cut(argument, "=")
	parts := strings.SplitN(rest, ",", 3)
	if !found || len(parts) != 3 {
		return spec{}, fmt.Errorf("%q is not NAME=MODE,RESOURCE,URL", argument)
	}
	resource, core := schema.ParseResourceArg(parts[1])
	if resource == nil {
		resource = &schema.GroupVersionResource{Version: "v1", Resource: core.Resource}
	}
	return spec{name: name, mode: parts[0], resource: *resource, url: parts[2]}, nil
}

func clientConfig(url, token, ca string) *rest.Config {
	return &rest.Config{
		Host: url, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: ca},
	}
}
