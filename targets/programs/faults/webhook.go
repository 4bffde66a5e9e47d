package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A webhook of an apiserver, over HTTPS. It answers three paths:
//
//	/readyz   200
//	/admit    an AdmissionReview (admission.k8s.io/v1), with a patch
//	/convert  a ConversionReview (apiextensions.k8s.io/v1) between the versions v1 and v2
//
// The file has one line `TOKEN MODE` or `TOKEN slow MILLISECONDS`:
//
//	normal  reviews are answered at once
//	slow    reviews are answered after this number of milliseconds
//	fail    reviews are answered 500
type webhook struct {
	port int

	lock sync.Mutex
	mode reviewMode
	// changed is closed when the mode is replaced.
	changed chan struct{}
	count   *reviews
}

type reviewMode struct {
	token string
	name  string
	delay time.Duration
}

// reviews counts what happened during one mode.
type reviews struct {
	admissions, conversions, delayed, failed atomic.Int64
}

// serveReviews answers until it fails.
func serveReviews(listen, control, certificate, key string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("%s is not an address of TCP", listener.Addr())
	}
	hook := &webhook{port: address.Port, changed: make(chan struct{}), count: &reviews{}}
	failed := make(chan error, 2)
	if err := follow(control, hook.read, failed); err != nil {
		return err
	}
	server := &http.Server{
		Handler:           hook.handler(),
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13},
	}
	go func() { failed <- server.ServeTLS(listener, certificate, key) }()
	return <-failed
}

func (h *webhook) read(words []string) error {
	next, err := parseReviewMode(words)
	if err == nil {
		h.set(next)
	}
	return err
}

func parseReviewMode(words []string) (reviewMode, error) {
	if len(words) == 2 && (words[1] == "normal" || words[1] == "fail") {
		return reviewMode{token: words[0], name: words[1]}, nil
	}
	if len(words) == 3 && words[1] == "slow" {
		milliseconds, err := strconv.Atoi(words[2])
		return reviewMode{words[0], words[1], time.Duration(milliseconds) * time.Millisecond}, err
	}
	return reviewMode{}, fmt.Errorf("%q is not a token and a mode", words)
}

// set changes the mode and prints the counters of the last one, and the port for clients.
func (h *webhook) set(next reviewMode) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if next == h.mode {
		return
	}
	last, count := h.mode, h.count
	h.mode, h.count = next, &reviews{}
	close(h.changed)
	h.changed = make(chan struct{})
	fmt.Printf("webhook: %s %s after %s port=%d admissions=%d conversions=%d delayed=%d failed=%d\n",
		next.token, next.name, last.name, h.port,
		count.admissions.Load(), count.conversions.Load(), count.delayed.Load(), count.failed.Load())
}

// now returns the mode, its counters, and a channel that is closed when the mode changes.
func (h *webhook) now() (reviewMode, *reviews, <-chan struct{}) {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.mode, h.count, h.changed
}

func (h *webhook) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/admit", func(to http.ResponseWriter, from *http.Request) {
		_, count, _ := h.now()
		count.admissions.Add(1)
		h.answer(to, from, admit)
	})
	mux.HandleFunc("/convert", func(to http.ResponseWriter, from *http.Request) {
		_, count, _ := h.now()
		count.conversions.Add(1)
		h.answer(to, from, convertAll)
	})
	return mux
}

// review is an AdmissionReview or a ConversionReview.
type review struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Request    json.RawMessage `json:"request,omitempty"`
	Response   any             `json:"response,omitempty"`
}

// answer sends the review with the response that respond returns for its request.
func (h *webhook) answer(to http.ResponseWriter, from *http.Request, respond func(request []byte) (any, error)) {
	body, err := io.ReadAll(from.Body)
	if err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	if err := h.await(from.Context()); err != nil {
		http.Error(to, err.Error(), http.StatusInternalServerError)
		return
	}
	var asked review
	if err := json.Unmarshal(body, &asked); err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	response, err := respond(asked.Request)
	if err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	to.Header().Set("Content-Type", "application/json")
	// An error means that the client has closed the connection.
	_ = json.NewEncoder(to).Encode(review{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: response})
}

// await returns when the review may be answered, or the error with which it fails.
func (h *webhook) await(client context.Context) error {
	began := time.Now()
	for {
		mode, count, changed := h.now()
		if mode.name == "fail" {
			count.failed.Add(1)
			return errors.New("the control file makes every review fail")
		}
		left := time.Until(began.Add(mode.delay))
		if left <= 0 {
			return nil
		}
		count.delayed.Add(1)
		select {
		case <-time.After(left):
		case <-changed:
		case <-client.Done():
			return client.Err()
		}
	}
}

// reviewed is the annotation in which the patch names the operation.
const reviewed = "archproof.example/reviewed"

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// admit allows an object. The patch adds the annotation and writes data.k in capitals, so that the same review again
// changes nothing.
func admit(request []byte) (any, error) {
	var asked struct {
		UID       string `json:"uid"`
		Operation string `json:"operation"`
		Object    struct {
			Metadata struct {
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
			Data map[string]string `json:"data"`
		} `json:"object"`
	}
	if err := json.Unmarshal(request, &asked); err != nil {
		return nil, err
	}
	var patch []operation
	if asked.Object.Metadata.Annotations == nil {
		patch = append(patch, operation{"add", "/metadata/annotations", map[string]string{}})
	}
	escaped := strings.ReplaceAll(reviewed, "/", "~1")
	patch = append(patch, operation{"add", "/metadata/annotations/" + escaped, asked.Operation})
	if text, ok := asked.Object.Data["k"]; ok {
		patch = append(patch, operation{"replace", "/data/k", strings.ToUpper(text)})
	}
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return struct {
		UID       string `json:"uid"`
		Allowed   bool   `json:"allowed"`
		PatchType string `json:"patchType"`
		// Base64 in JSON.
		Patch []byte `json:"patch"`
	}{asked.UID, true, "JSONPatch", encoded}, nil
}

// convertAll converts all objects of a request.
func convertAll(request []byte) (any, error) {
	var asked struct {
		UID               string            `json:"uid"`
		DesiredAPIVersion string            `json:"desiredAPIVersion"`
		Objects           []json.RawMessage `json:"objects"`
	}
	if err := json.Unmarshal(request, &asked); err != nil {
		return nil, err
	}
	converted := make([]any, 0, len(asked.Objects))
	for _, text := range asked.Objects {
		object := map[string]any{}
		decoder := json.NewDecoder(bytes.NewReader(text))
		// A float64 would round large integers.
		decoder.UseNumber()
		if err := decoder.Decode(&object); err != nil {
			return nil, err
		}
		convert(object, asked.DesiredAPIVersion)
		converted = append(converted, object)
	}
	return struct {
		UID              string            `json:"uid"`
		Result           map[string]string `json:"result"`
		ConvertedObjects []any             `json:"convertedObjects"`
	}{asked.UID, map[string]string{"status": "Success"}, converted}, nil
}

// convert renames a field: spec.colour of v1 is spec.color of v2.
func convert(object map[string]any, version string) {
	from, to := "colour", "color"
	if strings.HasSuffix(version, "/v1") {
		from, to = to, from
	}
	object["apiVersion"] = version
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return
	}
	if value, ok := spec[from]; ok {
		delete(spec, from)
		spec[to] = value
	}
}
