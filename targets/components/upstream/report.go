package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// A line of the results.
type line struct {
	// "planned", "started" or "finished".
	Event string `json:"event"`
	// How many specs will be run, or skipped for a need.
	Specs int `json:"specs,omitempty"`
	// The whole text of a spec, its labels included.
	Spec string `json:"spec,omitempty"`
	// A regular expression that selects this spec.
	Focus string `json:"focus,omitempty"`
	// Ginkgo's word: passed, failed, skipped, panicked, timedout, interrupted, aborted.
	State string `json:"state,omitempty"`
	// Why, if it did not pass.
	Message string `json:"message,omitempty"`
	// The last lines of what the spec said.
	Output []string `json:"output,omitempty"`
	// File and line of the spec.
	Location string  `json:"location,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`
}

// Specs that cannot run here.
type need struct {
	// A regular expression.
	Specs string `json:"specs"`
	// What they need.
	Need string `json:"need"`

	pattern *regexp.Regexp
}

type report struct {
	results, needs string

	mutex   sync.Mutex
	file    *os.File
	lacking []need
}

// The lines of a spec's output that are told.
const lastLines = 40

// flags registers our own flags.
func (r *report) flags(flags *flag.FlagSet) {
	flags.StringVar(&r.results, "archproof.results", "", "file for a line of JSON at each spec's start and end")
	flags.StringVar(&r.needs, "archproof.needs", "", "file with a JSON list of specs that cannot run, and what they need")
}

// begin reads and opens the files, and registers what Ginkgo calls around each spec.
//
// It must come after the framework has read its flags: then it runs all specs dry, each of which passes, and what was
// registered before sees that instead of what follows (ginkgo's PreviewSpecs, which forgets nodes outside containers).
func (r *report) begin() error {
	if r.needs != "" {
		if err := r.readNeeds(); err != nil {
			return fmt.Errorf("%s: %w", r.needs, err)
		}
	}
	if r.results != "" {
		file, err := os.OpenFile(r.results, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		r.file = file
	}
	r.register()
	return nil
}

func (r *report) register() {
	ginkgo.ReportBeforeSuite(func(suite types.Report) {
		r.tell(line{Event: "planned", Specs: suite.PreRunStats.SpecsThatWillRun})
	})
	ginkgo.ReportBeforeEach(func(spec types.SpecReport) {
		if spec.State != types.SpecStateSkipped && spec.State != types.SpecStatePending {
			r.tell(line{Event: "started", Spec: spec.FullText()})
		}
	})
	// Before the framework makes a namespace for it.
	ginkgo.BeforeEach(func() {
		text := ginkgo.CurrentSpecReport().FullText()
		for _, lacking := range r.lacking {
			if lacking.pattern.MatchString(text) {
				ginkgo.Skip(lacking.Need)
			}
		}
	})
	ginkgo.ReportAfterEach(r.ended)
}

func (r *report) readNeeds() error {
	content, err := os.ReadFile(r.needs)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, &r.lacking); err != nil {
		return err
	}
	// All of them, whichever are selected.
	specs := ginkgo.PreviewSpecs("all specs").SpecReports
	for i := range r.lacking {
		pattern, err := regexp.Compile(r.lacking[i].Specs)
		if err != nil {
			return err
		}
		matches := func(spec types.SpecReport) bool { return pattern.MatchString(spec.FullText()) }
		if !slices.ContainsFunc(specs, matches) {
			return fmt.Errorf("no spec matches %q, which %q is said to be needed for", r.lacking[i].Specs, r.lacking[i].Need)
		}
		r.lacking[i].pattern = pattern
	}
	return nil
}

func (r *report) ended(spec types.SpecReport) {
	message := spec.Failure.Message
	// Not selected: Ginkgo calls this for them as well, and they have no message.
	if spec.State == types.SpecStatePending || spec.State == types.SpecStateSkipped && message == "" {
		return
	}
	ended := line{
		Event:    "finished",
		Spec:     spec.FullText(),
		Focus:    "^" + regexp.QuoteMeta(spec.FullText()) + "$",
		State:    spec.State.String(),
		Message:  message,
		Location: fmt.Sprintf("%s:%d", spec.LeafNodeLocation.FileName, spec.LeafNodeLocation.LineNumber),
		Seconds:  spec.RunTime.Seconds(),
	}
	if spec.Failed() {
		if spec.Failure.ForwardedPanic != "" {
			ended.Message = strings.TrimSpace(message + ": " + spec.Failure.ForwardedPanic)
		}
		output := strings.Split(strings.TrimSpace(spec.CapturedGinkgoWriterOutput), "\n")
		ended.Output = output[max(0, len(output)-lastLines):]
	}
	r.tell(ended)
}

// A line that cannot be written ends the program: who reads them would take the spec for one that never ended.
func (r *report) tell(told line) {
	if r.file == nil {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	text, err := json.Marshal(told)
	if err == nil {
		_, err = r.file.Write(append(text, '\n'))
	}
	if err != nil {
		fail(fmt.Errorf("%s: %w", r.results, err))
	}
}
