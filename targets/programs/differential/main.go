// Evaluates generated inputs with the packages of Kubernetes and etcd, for `cargo xtask differential`.
//
// The program answers one JSON request per line of stdin with one line of JSON on stdout, and ends at the end of stdin.
// Two builds of it, for two architectures, get the same requests; each difference between their answers is an effect of
// the architecture. Subjects are in the other files: a subject generates inputs from a seed and evaluates them.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// A request has a field `op` and the fields of that operation.
type request struct {
	Op      string            `json:"op"`
	Subject string            `json:"subject"`
	Seed    uint64            `json:"seed"`
	From    uint64            `json:"from"`
	Count   uint64            `json:"count"`
	Batch   uint64            `json:"batch"`
	Inputs  []json.RawMessage `json:"inputs"`
	Mutant  string            `json:"mutant"`
}

func main() {
	version := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *version {
		if info, ok := debug.ReadBuildInfo(); ok {
			fmt.Println("differential", info.Main.Version)
		}
		return
	}
	// Packages under test log refused inputs; the answers contain the errors. LogToStderr(false) does not stop errors.
	klog.SetLogger(logr.Discard())
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(1)
	}
}

func serve(input io.Reader, output io.Writer) error {
	lines := bufio.NewReaderSize(input, 1<<20)
	answers := json.NewEncoder(output)
	answers.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil && err != io.EOF {
			return err
		}
		answer, err := answer(line)
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

func answer(line []byte) (any, error) {
	var request request
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, fmt.Errorf("the request is not JSON: %w", err)
	}
	switch request.Op {
	case "subjects":
		return map[string]any{"subjects": describe()}, nil
	case "mutants":
		return map[string]any{"mutants": describeMutants()}, nil
	case "mutate":
		return map[string]any{}, mutate(request.Mutant)
	}
	subject, ok := subjects[request.Subject]
	if !ok {
		return nil, fmt.Errorf("no subject %q", request.Subject)
	}
	switch request.Op {
	case "digests":
		if request.Batch == 0 || request.Count == 0 {
			return nil, errors.New("batch and count must be positive")
		}
		digests, violating := digests(subject, request)
		return map[string]any{"digests": digests, "violations": violating}, nil
	case "cases":
		return map[string]any{"cases": cases(subject, request)}, nil
	case "evaluate":
		return map[string]any{"cases": evaluateAll(subject, request.Inputs)}, nil
	}
	return nil, fmt.Errorf("no operation %q", request.Op)
}
