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

// told is one line of `testbed watch`: what a handler was called with (one of the start, or a late one), that a handler
// has had its first list, or a request that was answered (or not: status 0).
type told struct {
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

// teller writes lines, in the order in which it is told.
type teller struct {
	lock  sync.Mutex
	lines *json.Encoder
}

func (t *teller) tell(line told) {
	t.lock.Lock()
	defer t.lock.Unlock()
	// Nobody left to read means that the caller is gone.
	if err := t.lines.Encode(line); err != nil {
		os.Exit(1)
	}
}

// runWatch runs client-go's informers as a program would that uses them with nothing changed: one typed, one dynamic,
// one of metadata only, each of one namespace. The line `join` on stdin gives each of them a second handler. It ends
// when stdin does.
func runWatch(args []string) error {
	flags := flag.NewFlagSet("watch", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the cluster (required)")
	namespace := flags.String("namespace", "", "the namespace to watch; empty: all")
	log := flags.String("log", os.DevNull, "where client-go logs to")
	resync := flags.Duration("resync", 0, "how often the handlers of the start want every object repeated; 0: never")
	streaming := flags.Bool("streaming", true, "whether to ask for streaming lists")
	if err := flags.Parse(args); err != nil {
		return err
	}
	stderr, err := moveStderr(*log)
	if err != nil {
		return err
	}
	defer stderr.Close()
	// In this binary client-go's gates are those of the apiserver.
	gate := fmt.Sprintf("WatchListClient=%t", *streaming)
	if err := utilfeature.DefaultMutableFeatureGate.Set(gate); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	out := &teller{lines: json.NewEncoder(os.Stdout)}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &witness{next, out} })
	informers, err := startInformers(config, *namespace, *resync, out)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "join" {
			return fmt.Errorf("no command %q; there is: join", line)
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
	config *rest.Config, namespace string, resync time.Duration, out *teller,
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

// listen adds a handler, and tells when it has had the objects that were there before it.
func listen(
	informer cache.SharedIndexInformer, resource string, resync time.Duration, late bool, out *teller,
) error {
	handle, err := informer.AddEventHandlerWithResyncPeriod(handler(resource, late, out), resync)
	if err != nil {
		return err
	}
	go func() {
		cache.WaitForCacheSync(wait.NeverStop, handle.HasSynced)
		out.tell(told{Resource: resource, Late: late, Event: "synced"})
	}()
	return nil
}

func handler(resource string, late bool, out *teller) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			line := about(resource, "added", object)
			line.Initial, line.Late = initial, late
			out.tell(line)
		},
		UpdateFunc: func(old, object any) {
			line, before := about(resource, "updated", object), about(resource, "", old)
			line.OldUID, line.OldVersion, line.Late = before.UID, before.Version, late
			out.tell(line)
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
			out.tell(line)
		},
	}
}

func about(resource, event string, object any) told {
	line := told{Resource: resource, Event: event}
	if head, err := meta.Accessor(object); err == nil {
		line.Namespace, line.Name = head.GetNamespace(), head.GetName()
		line.UID, line.Version = string(head.GetUID()), head.GetResourceVersion()
	}
	return line
}

// witness tells of each request of an informer.
type witness struct {
	next http.RoundTripper
	out  *teller
}

func (w *witness) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	line := told{Resource: path.Base(strings.TrimSuffix(request.URL.Path, "/")), Event: "request", Verb: "list"}
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
	w.out.tell(line)
	return response, err
}
