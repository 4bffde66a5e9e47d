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
	// The number of specs that will be run, or skipped for a need.
	Specs int `json:"specs,omitempty"`
	// The whole text of a spec, including its labels.
	Spec string `json:"spec,omitempty"`
	// A regular expression that selects this spec.
	Focus string `json:"focus,omitempty"`
	// Ginkgo's word: passed, failed, skipped, panicked, timedout, interrupted, aborted.
	State string `json:"state,omitempty"`
	// The reason, if it did not pass.
	Message string `json:"message,omitempty"`
	// The last lines of the spec's output.
	Output []string `json:"output,omitempty"`
	// File and line of the spec.
	Location string  `json:"location,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`
}

// Specs that cannot run here.
type need struct {
	// A regular expression.
	Specs string `json:"specs"`
	// The requirement that the cluster does not fulfil.
	Need string `json:"need"`

	pattern *regexp.Regexp
}

type report struct {
	results, needs string

	mutex   sync.Mutex
	file    *os.File
	lacking []need
}

// The number of lines of a spec's output that are reported.
const lastLines = 40

// flags registers the two flags of this program.
func (r *report) flags(flags *flag.FlagSet) {
	flags.StringVar(&r.results, "archproof.results", "", "file for a line of JSON at each spec's start and end")
	flags.StringVar(&r.needs, "archproof.needs", "", "file with a JSON list of specs that cannot run, and what they need")
}

// begin reads and opens the files, and registers the functions that Ginkgo calls around each spec.
//
// It must be called after the framework has read its flags: the framework then runs all specs dry, each of which
// passes, and functions registered before would see that run instead of the real one (ginkgo's PreviewSpecs, which
// forgets nodes outside containers).
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
	// This runs before the framework creates a namespace for the spec.
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
	// All specs, whether selected or not.
	specs := ginkgo.PreviewSpecs("all specs").SpecReports
	for i := range r.lacking {
		pattern, err := regexp.Compile(r.lacking[i].Specs)
		if err != nil {
			return err
		}
		matches := func(spec types.SpecReport) bool { return pattern.MatchString(spec.FullText()) }
		if !slices.ContainsFunc(specs, matches) {
			return fmt.Errorf("no spec matches %q, although %q is needed for it", r.lacking[i].Specs, r.lacking[i].Need)
		}
		r.lacking[i].pattern = pattern
	}
	return nil
}

func (r *report) ended(spec types.SpecReport) {
	message := spec.Failure.Message
	// Ginkgo calls this for specs that are not selected as well; they have no message.
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

// tell writes a line. If that fails, the program exits: a reader would otherwise assume that the spec never ended.
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
