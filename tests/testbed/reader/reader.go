package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// kept limits the number of error texts in a dump.
const kept = 20

// reader is a running reader: its store, and counts of its requests, errors and events.
type reader struct {
	spec      spec
	store     cache.Store
	hasSynced func() bool

	lock    sync.Mutex
	counts  map[string]int
	errors  []string
	reverts []string
}

// dump is the state of a reader.
type dump struct {
	Synced  bool           `json:"synced"`
	Objects []object       `json:"objects"`
	Counts  map[string]int `json:"counts"`
	Errors  []string       `json:"errors"`
	// Updates whose version is smaller than the version before. (A list repeats versions.)
	Reverts []string `json:"reverts"`
}

// start starts a reader.
func start(spec spec, config *rest.Config) (*reader, error) {
	this := &reader{spec: spec, counts: map[string]int{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recorder{next, this} })
	if spec.mode == "reflector" {
		return this, this.startReflector(config)
	}
	informer, run, err := newInformer(spec, config)
	if err != nil {
		return nil, err
	}
	this.store, this.hasSynced = informer.GetStore(), informer.HasSynced
	if err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { this.failed(err) }); err != nil {
		return nil, err
	}
	if _, err := informer.AddEventHandler(this.handler()); err != nil {
		return nil, err
	}
	run()
	return this, nil
}

// startReflector starts a Reflector. Its store is keyed by UID, so objects of several clusters may share a name. (Streaming
// lists pass through a store of client-go's that is keyed by name.)
func (r *reader) startReflector(config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	resource := client.Resource(r.spec.resource)
	r.store = cache.NewStore(func(object any) (string, error) {
		head, err := meta.Accessor(object)
		if err != nil {
			return "", err
		}
		return string(head.GetUID()), nil
	})
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, options)
		},
	}, client)
	options := cache.ReflectorOptions{Name: r.spec.name}
	reflector := cache.NewReflectorWithOptions(source, &unstructured.Unstructured{}, r.store, options)
	r.hasSynced = func() bool { return reflector.LastSyncResourceVersion() != "" }
	go reflector.Run(wait.NeverStop)
	return nil
}

func newInformer(spec spec, config *rest.Config) (cache.SharedIndexInformer, func(), error) {
	switch spec.mode {
	case "typed", "json", "protobuf":
		if spec.mode == "protobuf" {
			config.ContentType = "application/vnd.kubernetes.protobuf"
			config.AcceptContentTypes = config.ContentType
		}
		if spec.mode == "json" {
			config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		generic, err := factory.ForResource(spec.resource)
		if err != nil {
			return nil, nil, err
		}
		return generic.Informer(), func() { factory.Start(wait.NeverStop) }, nil
	case "dynamic":
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
		return factory.ForResource(spec.resource).Informer(), func() { factory.Start(wait.NeverStop) }, nil
	case "metadata":
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		factory := metadatainformer.NewSharedInformerFactory(client, 0)
		return factory.ForResource(spec.resource).Informer(), func() { factory.Start(wait.NeverStop) }, nil
	default:
		return nil, nil, fmt.Errorf("unknown mode %q; known: typed, json, dynamic, metadata, reflector", spec.mode)
	}
}

func (r *reader) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { r.count("added") },
		UpdateFunc: func(old, object any) {
			r.count("updated")
			before, after := version(old), version(object)
			if after < before && uid(old) == uid(object) {
				r.lock.Lock()
				defer r.lock.Unlock()
				r.reverts = append(r.reverts, fmt.Sprintf("%s: %d after %d", uid(object), after, before))
			}
		},
		DeleteFunc: func(any) { r.count("deleted") },
	}
}

func version(object any) int64 {
	head, err := meta.Accessor(object)
	if err != nil {
		return 0
	}
	number, _ := strconv.ParseInt(head.GetResourceVersion(), 10, 64)
	return number
}

func uid(object any) string {
	head, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return string(head.GetUID())
}

func (r *reader) count(what string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.counts[what]++
}

func (r *reader) failed(err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.counts["errors"]++
	r.errors = append(r.errors, time.Now().Format(time.TimeOnly)+" "+err.Error())
	if len(r.errors) > kept {
		r.errors = r.errors[len(r.errors)-kept:]
	}
}

func (r *reader) dump() dump {
	objects := []object{}
	for _, key := range r.store.ListKeys() {
		if stored, ok, err := r.store.GetByKey(key); ok && err == nil {
			objects = append(objects, describe(key, stored))
		}
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	counts := map[string]int{}
	for what, count := range r.counts {
		counts[what] = count
	}
	return dump{
		Synced: r.hasSynced(), Objects: objects, Counts: counts,
		Errors: append([]string{}, r.errors...), Reverts: append([]string{}, r.reverts...),
	}
}

// recorder counts the requests of a reader by verb and status.
type recorder struct {
	next   http.RoundTripper
	reader *reader
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	query, verb := request.URL.Query(), "list"
	if watch := query.Get("watch"); watch == "true" || watch == "1" {
		verb = "watch"
	}
	if query.Get("sendInitialEvents") == "true" {
		verb = "stream"
	}
	response, err := r.next.RoundTrip(request)
	if err != nil {
		r.reader.count(verb + " failed")
	} else {
		r.reader.count(fmt.Sprintf("%s %d", verb, response.StatusCode))
	}
	return response, err
}
