package main

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/cache"
)

// noSend is the annotation value of listed objects. Larger values are send times in microseconds.
const noSend = 1_000_000_000_000_000

// received counts the notifications of the informer's handler.
type received struct {
	count, version atomic.Int64
	timed          atomic.Bool
	mutex          sync.Mutex
	latencies      []time.Duration
}

func (t *received) add() { t.count.Add(1) }

func (t *received) update(version, sent string) {
	if number, err := strconv.ParseInt(version, 10, 64); err == nil && number > t.version.Load() {
		t.version.Store(number)
	}
	if t.timed.Load() {
		if micros, err := strconv.ParseInt(sent, 10, 64); err == nil && micros > noSend {
			latency := time.Since(time.UnixMicro(micros))
			t.mutex.Lock()
			t.latencies = append(t.latencies, latency)
			t.mutex.Unlock()
		}
	}
	t.count.Add(1)
}

// quantile returns a quantile of the latencies in microseconds.
func (t *received) quantile(part float64) float64 {
	if len(t.latencies) == 0 {
		return 0
	}
	return float64(t.latencies[int(float64(len(t.latencies)-1)*part)].Nanoseconds()) / 1e3
}

func until(done func() bool) error {
	for end := time.Now().Add(10 * time.Minute); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("condition not reached within 10 minutes")
		}
	}
	return nil
}

// serveSession handles `sync COUNT`, `flood VERSION` and `pace VERSION`. The last two print a ready line, upon which the
// bench makes the server send events up to that version.
func serveSession(kind, url string) error {
	seen := &received{}
	informer, start, err := newInformer(kind, url)
	if err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(handlers(seen)); err != nil {
		return err
	}
	// As for every contestant, the cost of starting is not counted.
	time.Sleep(time.Second)
	say(map[string]any{"phase": "idle"})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) != 2 {
			return fmt.Errorf("unknown command: %q", lines.Text())
		}
		number, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return err
		}
		switch words[0] {
		case "sync":
			err = doSync(seen, start, number)
		case "flood", "pace":
			err = doEvents(seen, words[0] == "pace", number)
		default:
			err = fmt.Errorf("unknown command: %q", words[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func doSync(seen *received, start func(), count int64) error {
	before, cpu, began := memory("VmRSS:"), usage(), time.Now()
	start()
	if err := until(func() bool { return seen.count.Load() >= count }); err != nil {
		return err
	}
	wall, cpu := time.Since(began), usage()-cpu
	time.Sleep(6 * time.Second)
	say(map[string]any{
		"phase": "synced", "wall_us": wall.Microseconds(), "cpu_us": cpu.Microseconds(),
		"rss": memory("VmRSS:") - before, "peak": memory("VmHWM:") - before,
	})
	return nil
}

func doEvents(seen *received, timed bool, version int64) error {
	seen.timed.Store(timed)
	seen.latencies = nil
	before, cpu, began := seen.count.Load(), usage(), time.Now()
	say(map[string]any{"phase": "ready"})
	if err := until(func() bool { return seen.version.Load() >= version }); err != nil {
		return err
	}
	wall, cpu := time.Since(began), usage()-cpu
	seen.mutex.Lock()
	defer seen.mutex.Unlock()
	sort.Slice(seen.latencies, func(i, j int) bool { return seen.latencies[i] < seen.latencies[j] })
	say(map[string]any{
		"phase": "told", "wall_us": wall.Microseconds(), "cpu_us": cpu.Microseconds(),
		"told": seen.count.Load() - before, "p50_us": seen.quantile(0.5), "p99_us": seen.quantile(0.99),
	})
	return nil
}

func handlers(seen *received) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { seen.add() },
		UpdateFunc: func(_, new any) {
			object, ok := new.(interface {
				GetResourceVersion() string
				GetAnnotations() map[string]string
			})
			if !ok {
				return
			}
			sent := ""
			if seen.timed.Load() {
				sent = object.GetAnnotations()["bench/sent"]
			}
			seen.update(object.GetResourceVersion(), sent)
		},
	}
}

// usage returns the user and system time of this process.
func usage() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// memory returns one size from this process's status, in bytes.
func memory(field string) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(status), "\n") {
		if words := strings.Fields(line); len(words) == 3 && words[0] == field {
			kilobytes, _ := strconv.ParseInt(words[1], 10, 64)
			return kilobytes * 1024
		}
	}
	return 0
}
