package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// record is one output line of `testbed watch`: a handler call (of a first or late handler), the end of a handler's first
// list, or a request with its status (0 if it failed).
type record struct {
	Resource   string `json:"resource"`
	Late       bool   `json:"late,omitempty"`
	Event      string `json:"event"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	UID        string `json:"uid,omitempty"`
	Version    string `json:"version,omitempty"`
	OldUID     string `json:"oldUid,omitempty"`
	OldVersion string `json:"oldVersion,omitempty"`
	Initial    bool   `json:"initial,omitempty"`
	Tombstone  bool   `json:"tombstone,omitempty"`
	Verb       string `json:"verb,omitempty"`
	Status     int    `json:"status,omitempty"`
}

// printer writes lines as JSON, in the order of calls.
type printer struct {
	lock  sync.Mutex
	lines *json.Encoder
}

func (p *printer) print(event record) {
	p.lock.Lock()
	defer p.lock.Unlock()
	// The caller has closed the pipe.
	if err := p.lines.Encode(event); err != nil {
		os.Exit(1)
	}
}

// runWatch runs client-go's informers with default settings, over one namespace: a typed, a dynamic and a metadata-only
// one. The command `join` on stdin adds a second handler to each. It returns at the end of stdin.
func runWatch(args []string) error {
	flags := flag.NewFlagSet("watch", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the cluster (required)")
	namespace := flags.String("namespace", "", "namespace to watch; empty: all")
	log := flags.String("log", os.DevNull, "file for client-go's log")
	resync := flags.Duration("resync", 0, "resync period of the first handlers; 0: never")
	streaming := flags.Bool("streaming", true, "whether to request streaming lists")
	if err := flags.Parse(args); err != nil {
		return err
	}
	stderr, err := moveStderr(*log)
	if err != nil {
		return err
	}
	defer stderr.Close()
	// In this binary, client-go's feature gates are those of the apiserver.
	gate := fmt.Sprintf("WatchListClient=%t", *streaming)
	if err := utilfeature.DefaultMutableFeatureGate.Set(gate); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	out := &printer{lines: json.NewEncoder(os.Stdout)}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recorder{next, out} })
	informers, err := startInformers(config, *namespace, *resync, out)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "join" {
			return fmt.Errorf("unknown command %q; known: join", line)
		}
		for resource, informer := range informers {
			if err := listen(informer, resource, 0, true, out); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

func startInformers(
	config *rest.Config, namespace string, resync time.Duration, out *printer,
) (map[string]cache.SharedIndexInformer, error) {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	heads, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	typedFactory := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(namespace))
	dynamicFactory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, 0, namespace, nil)
	metadataFactory := metadatainformer.NewFilteredSharedInformerFactory(heads, 0, namespace, nil)
	widgets := schema.GroupVersionResource{Group: "bed.example.com", Version: "v1", Resource: "widgets"}
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	all := map[string]cache.SharedIndexInformer{
		"pods":       typedFactory.Core().V1().Pods().Informer(),
		"widgets":    dynamicFactory.ForResource(widgets).Informer(),
		"configmaps": metadataFactory.ForResource(configMaps).Informer(),
	}
	for resource, informer := range all {
		if err := listen(informer, resource, resync, false, out); err != nil {
			return nil, err
		}
	}
	typedFactory.Start(wait.NeverStop)
	dynamicFactory.Start(wait.NeverStop)
	metadataFactory.Start(wait.NeverStop)
	return all, nil
}

// listen adds a handler and reports when its initial list is complete.
func listen(
	informer cache.SharedIndexInformer, resource string, resync time.Duration, late bool, out *printer,
) error {
	handle, err := informer.AddEventHandlerWithResyncPeriod(handler(resource, late, out), resync)
	if err != nil {
		return err
	}
	go func() {
		cache.WaitForCacheSync(wait.NeverStop, handle.HasSynced)
		out.print(record{Resource: resource, Late: late, Event: "synced"})
	}()
	return nil
}

func handler(resource string, late bool, out *printer) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			line := about(resource, "added", object)
			line.Initial, line.Late = initial, late
			out.print(line)
		},
		UpdateFunc: func(old, object any) {
			line, before := about(resource, "updated", object), about(resource, "", old)
			line.OldUID, line.OldVersion, line.Late = before.UID, before.Version, late
			out.print(line)
		},
		DeleteFunc: func(object any) {
			unseen, tombstone := object.(cache.DeletedFinalStateUnknown)
			if tombstone {
				object = unseen.Obj
			}
			line := about(resource, "deleted", object)
			line.Tombstone, line.Late = tombstone, late
			if tombstone && line.Name == "" {
				line.Namespace, line.Name, _ = cache.SplitMetaNamespaceKey(unseen.Key)
			}
			out.print(line)
		},
	}
}

func about(resource, event string, object any) record {
	line := record{Resource: resource, Event: event}
	if head, err := meta.Accessor(object); err == nil {
		line.Namespace, line.Name = head.GetNamespace(), head.GetName()
		line.UID, line.Version = string(head.GetUID()), head.GetResourceVersion()
	}
	return line
}

// recorder reports each request of an informer.
type recorder struct {
	next http.RoundTripper
	out  *printer
}

func (w *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	line := record{Resource: path.Base(strings.TrimSuffix(request.URL.Path, "/")), Event: "request", Verb: "list"}
	if query.Get("watch") == "true" || query.Get("watch") == "1" {
		line.Verb = "watch"
	}
	if query.Get("sendInitialEvents") == "true" {
		line.Verb = "stream"
	}
	line.Version = query.Get("resourceVersion")
	response, err := w.next.RoundTrip(request)
	if response != nil {
		line.Status = response.StatusCode
	}
	w.out.print(line)
	return response, err
}
