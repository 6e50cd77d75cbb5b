// Receives the webhooks of informer-hub: verifies signatures, drops repeated events, prints the others.
//
//	WEBHOOK_SECRET=whsec_... go run . 127.0.0.1:9000
//
// It needs Go 1.22 and nothing else.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tolerance  = 5 * time.Minute // maximum difference between a timestamp and the clock
	limit      = 64 << 20        // maximum size of a body in bytes
	remembered = 100_000         // number of event ids that are stored
)

// event has the members of a CloudEvent that are used here; "data" holds the object.
type event struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Source  string          `json:"source"`
	Subject string          `json:"subject"`
	Data    json.RawMessage `json:"data"`
}

// keysOf parses secrets in the format of the hub: whsec_ and base64, or plain text. White space separates several.
func keysOf(secret string) ([][]byte, error) {
	var keys [][]byte
	for _, one := range strings.Fields(secret) {
		key := []byte(one)
		if encoded, ok := strings.CutPrefix(one, "whsec_"); ok {
			var err error
			if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
				return nil, errors.New("the secret is not base64")
			}
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("the secret is empty")
	}
	return keys, nil
}

// verify checks that a request was signed recently with one of the keys.
func verify(keys [][]byte, header http.Header, body []byte, now time.Time) error {
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	signatures := strings.Fields(header.Get("webhook-signature"))
	if id == "" || timestamp == "" || len(signatures) == 0 {
		return errors.New("not signed")
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errors.New("timestamp is too old or in the future")
	}
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.", id, timestamp)
		mac.Write(body)
		right := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		for _, given := range signatures {
			if hmac.Equal([]byte(right), []byte(given)) {
				return nil
			}
		}
	}
	return errors.New("signature does not match")
}

// inbox handles each event once. To survive a restart, store the ids together with the effects of the events.
type inbox struct {
	mutex  sync.Mutex
	seen   map[string]bool
	order  []string
	handle func(event) error
}

func (i *inbox) take(events []event) error {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	for _, one := range events {
		if i.seen[one.ID] {
			continue
		}
		if err := i.handle(one); err != nil {
			return err
		}
		// Stored after handling: if handling fails, the event is delivered again.
		i.seen[one.ID] = true
		if i.order = append(i.order, one.ID); len(i.order) > remembered {
			delete(i.seen, i.order[0])
			i.order = i.order[1:]
		}
	}
	return nil
}

// eventsOf parses a batch or a single event.
func eventsOf(body []byte) ([]event, error) {
	var events []event
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		err = json.Unmarshal(body, &events)
	} else {
		events = make([]event, 1)
		err = json.Unmarshal(body, &events[0])
	}
	for _, one := range events {
		if one.ID == "" {
			err = errors.New("an event has no id")
		}
	}
	return events, err
}

func receive(keys [][]byte, inbox *inbox) http.HandlerFunc {
	return func(answer http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodPost {
			http.Error(answer, "POST events here", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(answer, request.Body, limit))
		if err != nil {
			http.Error(answer, "body is too large or incomplete", http.StatusRequestEntityTooLarge)
			return
		}
		if err := verify(keys, request.Header, body, time.Now()); err != nil {
			http.Error(answer, err.Error(), http.StatusUnauthorized)
			return
		}
		events, err := eventsOf(body)
		if err != nil {
			http.Error(answer, "body is not events", http.StatusBadRequest)
			return
		}
		if err := inbox.take(events); err != nil {
			log.Print(err)
			http.Error(answer, "try again", http.StatusInternalServerError)
			return
		}
		answer.WriteHeader(http.StatusNoContent)
	}
}

func show(one event) error {
	_, err := fmt.Println(one.Type, one.Source, one.Subject)
	return err
}

func main() {
	address := "127.0.0.1:9000"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	secret := os.Getenv("WEBHOOK_SECRET")
	if strings.TrimSpace(secret) == "" {
		fmt.Fprintln(os.Stderr, "set WEBHOOK_SECRET to the sink's signing_secret")
		os.Exit(2)
	}
	keys, err := keysOf(secret)
	if err != nil {
		log.Fatal("WEBHOOK_SECRET: ", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := http.Server{
		Handler:           receive(keys, &inbox{seen: map[string]bool{}, handle: show}),
		ReadHeaderTimeout: 15 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
	}
	log.Fatal(server.Serve(listener))
}
