package main

import (
	"fmt"
	"runtime"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// measureIndex fills an Indexer with small pods and times index lookups with one match, and label scans over all.
func measureIndex(count int) error {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		"by-uid": func(object any) ([]string, error) { return []string{string(object.(*corev1.Pod).UID)}, nil },
	})
	apps := []string{"web", "api", "cart", "search", "auth", "mail", "billing", "gateway", "worker", "cache", "ingest", "report"}
	for i := range count {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("ns-%d", i%5),
			Name:      fmt.Sprintf("pod-%d", i),
			UID:       uid(i),
			Labels:    map[string]string{"app": apps[i%len(apps)], "tier": "backend", "team": "payments", "hash": fmt.Sprint(i)},
		}}
		if err := indexer.Add(pod); err != nil {
			return err
		}
	}
	runtime.GC()
	lookups := make([]time.Duration, 0, 100_000)
	for i := range 100_000 {
		value := string(uid(i * 7919 % count))
		began := time.Now()
		found, err := indexer.ByIndex("by-uid", value)
		lookups = append(lookups, time.Since(began))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("by-uid %s found %d objects: %w", value, len(found), err)
		}
	}
	scans := make([]time.Duration, 0, 10)
	selector := labels.SelectorFromSet(labels.Set{"app": "web", "hash": "12"})
	for range 10 {
		began := time.Now()
		found := 0
		if err := cache.ListAll(indexer, selector, func(any) { found++ }); err != nil {
			return err
		}
		scans = append(scans, time.Since(began))
	}
	say(map[string]any{
		"phase": "index", "objects": count,
		"by_index_p50_us": at(lookups, 0.5), "by_index_p99_us": at(lookups, 0.99),
		"scan_p50_us": at(scans, 0.5), "scan_p99_us": at(scans, 0.99),
	})
	return nil
}

func uid(i int) types.UID {
	return types.UID(fmt.Sprintf("%08x-7dec-41d0-a765-00a0c91e6bf6", i))
}

func at(series []time.Duration, part float64) float64 {
	sort.Slice(series, func(i, j int) bool { return series[i] < series[j] })
	return float64(series[int(float64(len(series)-1)*part)].Nanoseconds()) / 1e3
}
