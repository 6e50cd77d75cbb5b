// Command testbed runs a real Kubernetes control plane in one process: an embedded etcd and a kube-apiserver, both on
// loopback. The tests in tests/real start one process per cluster, since the apiserver has process-wide state.
//
// Persistent state (ports, certificates, tokens, etcd's data) is in --dir. A process restarted on the same directory is
// the same cluster at the same address.
//
// Once the cluster serves requests, the process prints one JSON line. Then it reads commands from stdin, one per line, and
// answers each with one JSON line. It exits at the end of stdin, so an aborted test run leaves no cluster behind.
//
// `testbed watch` runs client-go's informers and prints their notifications (watch.go).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settings are the command line options.
type settings struct {
	dir      string
	name     string
	port     int
	etcdPort int
	deadline time.Duration
	stay     bool
	remove   bool
	extra    []string
}

// ready is the JSON line printed once the cluster serves requests.
type ready struct {
	Name              string            `json:"name"`
	URL               string            `json:"url"`
	Kubeconfig        string            `json:"kubeconfig"`
	LimitedKubeconfig string            `json:"limited_kubeconfig"`
	CA                string            `json:"ca"`
	Log               string            `json:"log"`
	Tokens            map[string]string `json:"tokens"`
	StartedInMillis   int64             `json:"started_in_ms"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "watch" {
		if err := runWatch(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "testbed watch:", err)
			os.Exit(1)
		}
		return
	}
	set := parse()
	stderr, err := moveStderr(filepath.Join(set.dir, "log"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
	if err := run(set); err != nil {
		// To the caller, and to the log after the lines that led to the error.
		fmt.Fprintln(stderr, "testbed:", err)
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}

func parse() settings {
	var set settings
	flag.StringVar(&set.dir, "dir", "", "directory of the cluster's state (required; created if missing)")
	flag.StringVar(&set.name, "name", "testbed", "cluster name, used as the kubeconfig's context")
	flag.IntVar(&set.port, "port", 0, "port of the apiserver (0: that of the last start on this directory, or a free one)")
	flag.IntVar(&set.etcdPort, "etcd-port", 0, "port of etcd (0: as for --port)")
	flag.DurationVar(&set.deadline, "deadline", 80*time.Second, "deadline of the start")
	flag.BoolVar(&set.stay, "stay", false, "keep running when stdin ends")
	flag.BoolVar(&set.remove, "remove", false, "remove the directory when stdin ends")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: testbed --dir DIR [flags] [-- kube-apiserver flags]")
		fmt.Fprintln(flag.CommandLine.Output(), "       testbed watch --kubeconfig FILE [flags]")
		flag.PrintDefaults()
	}
	flag.Parse()
	set.extra = flag.Args()
	if set.dir == "" {
		flag.Usage()
		os.Exit(2)
	}
	dir, err := filepath.Abs(set.dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
	set.dir = dir
	return set
}

// moveStderr redirects file descriptor 2 to the log, for klog, zap and panic traces, and returns the original stderr.
func moveStderr(path string) (*os.File, error) {
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	old, err := unix.Dup(2)
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(old)
	return os.NewFile(uintptr(old), "stderr"), unix.Dup2(int(log.Fd()), 2)
}

func run(set settings) error {
	began := time.Now()
	ports, err := choosePorts(set)
	if err != nil {
		return err
	}
	files, err := prepareFiles(set, ports)
	if err != nil {
		return err
	}
	// From here on, the end of stdin ends the process, also during the start.
	lines := readLines(set)

	ctx, cancel := context.WithTimeout(context.Background(), set.deadline)
	defer cancel()
	etcd, err := startEtcd(ctx, set, ports)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	died := make(chan error, 1)
	go func() { died <- serveAPI(set, ports, files) }()
	if err := awaitReady(ctx, ports, files, died); err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}
	say(ready{
		Name:              set.name,
		URL:               ports.url(),
		Kubeconfig:        files.kubeconfig,
		LimitedKubeconfig: files.limitedKubeconfig,
		CA:                files.ca,
		Log:               filepath.Join(set.dir, "log"),
		Tokens:            files.tokens,
		StartedInMillis:   time.Since(began).Milliseconds(),
	})
	for {
		select {
		case line := <-lines:
			say(command(etcd, line))
		case err := <-died:
			return fmt.Errorf("apiserver ended: %w", err)
		}
	}
}

// readLines returns the lines of stdin. At its end it exits the process, unless --stay is set.
func readLines(set settings) <-chan string {
	lines := make(chan string)
	go func() {
		scanner := bufio.NewScanner(os.Stdin)
		for scanner.Scan() {
			if line := strings.TrimSpace(scanner.Text()); line != "" {
				lines <- line
			}
		}
		if set.stay {
			return
		}
		if set.remove {
			// Best effort, since etcd may still write.
			_ = os.RemoveAll(set.dir)
		}
		os.Exit(0)
	}()
	return lines
}

// command executes one command line.
func command(etcd *etcdHandle, line string) any {
	switch line {
	case "compact":
		revision, err := etcd.compact()
		if err != nil {
			return map[string]string{"error": err.Error()}
		}
		return map[string]int64{"compacted": revision}
	default:
		return map[string]string{"error": fmt.Sprintf("unknown command %q; known: compact", line)}
	}
}

// say writes one JSON line to stdout. It exits the process if the caller has closed the pipe.
func say(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		os.Exit(1)
	}
}
