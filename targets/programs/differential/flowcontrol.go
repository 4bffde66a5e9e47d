// Subjects about API Priority and Fairness: limits, borrowing, work estimates, shuffle sharding, fair queuing.
package main

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"

	flowcontrolapi "k8s.io/api/flowcontrol/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/testing/eventclock"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/apiserver/pkg/util/shufflesharding"
	"k8s.io/client-go/informers"
	testclock "k8s.io/utils/clock/testing"
)

func init() {
	defineAllocationSubjects()
	defineEstimateSubjects()
	defineQueuingSubjects()
}

// ---- Concurrency limits ----

// apfClass has the layout of flowcontrol's allocProblemItem.
type apfClass struct{ target, lower, upper float64 }

//go:linkname apfAllocate k8s.io/apiserver/pkg/util/flowcontrol.computeConcurrencyAllocation
func apfAllocate(sum int, classes []apfClass) ([]float64, float64, error)

//go:linkname apfDigest k8s.io/apiserver/pkg/util/flowcontrol.(*configController).lockAndDigestConfigObjects
func apfDigest(controller unsafe.Pointer, levels []*flowcontrolapi.PriorityLevelConfiguration,
	schemas []*flowcontrolapi.FlowSchema) []struct{}

//go:linkname apfHashFlow k8s.io/apiserver/pkg/util/flowcontrol.hashFlowID
func apfHashFlow(schema, distinguisher string) uint64

//go:linkname apfUpdateStats k8s.io/apiserver/pkg/util/flowcontrol.(*seatDemandStats).update
func apfUpdateStats(stats *apfStats, observed fairqueuing.IntegratorResults)

// apfStats has the layout of flowcontrol's seatDemandStats.
type apfStats struct {
	average, deviation float64
	highWatermark      int
	smoothed           float64
}

// apfLevel is a priority level of apf.allocation; its target is in billionths, because a smoothed demand is not an
// integer.
type apfLevel struct {
	Target int64 `json:"target"`
	Lower  int32 `json:"lower"`
	Upper  int32 `json:"upper"`
}

type apfAllocationInput struct {
	Sum    int32      `json:"sum"`
	Levels []apfLevel `json:"levels"`
}

// apfShares is a PriorityLevelConfiguration of apf.limits.
type apfShares struct {
	Shares   int32  `json:"shares"`
	Lendable int32  `json:"lendable"`
	Borrow   *int32 `json:"borrow,omitempty"`
	Hand     int32  `json:"hand"`
}

type apfLimitsInput struct {
	Server int32       `json:"server"`
	Levels []apfShares `json:"levels"`
}

// apfPrototype is a controller without informers and goroutines; each input gets a copy of its type.
var apfPrototype = sync.OnceValue(func() reflect.Type {
	clock, _ := eventclock.NewFake(controllerTime, 0, nil)
	controller := flowcontrol.NewTestable(flowcontrol.TestableConfig{Name: "differential", Clock: clock,
		FoundToDangling: func(bool) bool { return false },
		InformerFactory: informers.NewSharedInformerFactory(nil,
			0), ServerConcurrencyLimit: 600, ReqsGaugeVec: fcmetrics.PriorityLevelConcurrencyGaugeVec,
		ExecSeatsGaugeVec: fcmetrics.PriorityLevelExecutionSeatsGaugeVec, QueueSetFactory: queueset.NewQueueSetFactory(clock)})
	return reflect.TypeOf(controller).Elem()
})

// evaluateAPFLimits lets the controller of the flow control filter digest priority levels.
func evaluateAPFLimits(in apfLimitsInput) (any, error) {
	if in.Server < 1 || len(in.Levels) > 20 {
		return nil, errNotAnInput
	}
	clock, _ := eventclock.NewFake(controllerTime, 0, apfNoFuzz)
	controller := reflect.New(apfPrototype())
	maxSeats := flowcontrol.NewMaxSeatsTracker()
	for name, value := range map[string]any{"clock": clock, "queueSetFactory": queueset.NewQueueSetFactory(clock),
		"reqsGaugeVec": fcmetrics.PriorityLevelConcurrencyGaugeVec, "execSeatsGaugeVec": fcmetrics.PriorityLevelExecutionSeatsGaugeVec,
		"foundToDangling": func(bool) bool { return false }, "serverConcurrencyLimit": int(in.Server), "MaxSeatsTracker": maxSeats} {
		setField(controller.Interface(), name, value)
	}
	levels := []*flowcontrolapi.PriorityLevelConfiguration{}
	for i, level := range in.Levels {
		// Validation bounds percentages, shares and the hand; a level whose hand is too large is ignored.
		if level.Shares < 0 || level.Lendable < 0 || level.Lendable > 100 || level.Borrow != nil && *level.Borrow < 0 || level.Hand < 1 {
			return nil, errNotAnInput
		}
		levels = append(levels, &flowcontrolapi.PriorityLevelConfiguration{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint("level-", i)},
			Spec: flowcontrolapi.PriorityLevelConfigurationSpec{Type: flowcontrolapi.PriorityLevelEnablementLimited,
				Limited: &flowcontrolapi.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &level.Shares,
					LendablePercent:       &level.Lendable,
					BorrowingLimitPercent: level.Borrow, LimitResponse: flowcontrolapi.LimitResponse{Type: flowcontrolapi.LimitResponseTypeQueue,
						Queuing: &flowcontrolapi.QueuingConfiguration{Queues: 16, HandSize: level.Hand,
							QueueLengthLimit: 50}}}}})
	}
	apfDigest(controller.UnsafePointer(), levels, nil)
	answer := map[string][]int64{}
	states := controller.Elem().FieldByName("priorityLevelStates")
	for _, name := range states.MapKeys() {
		state, numbers := states.MapIndex(name).Elem(), []int64{}
		for _, field := range []string{"nominalCL", "minCL", "maxCL", "currentCL"} {
			numbers = append(numbers, state.FieldByName(field).Int())
		}
		answer[name.String()] = append(numbers, int64(maxSeats.GetMaxSeats(name.String())))
	}
	return answer, nil
}

// evaluateAPFAllocation returns the limits that the server applies or, with bits, the floats that it rounds.
func evaluateAPFAllocation(in apfAllocationInput, bits bool) (any, error) {
	classes := []apfClass{}
	for _, level := range in.Levels {
		lower := float64(level.Lower)
		// As updateBorrowingLocked does: a target is at least the lower bound.
		classes = append(classes, apfClass{math.Max(lower, float64(level.Target)/1e9), lower, float64(level.Upper)})
	}
	allocations, fair, err := apfAllocate(int(in.Sum), classes)
	if err != nil {
		return nil, err
	}
	exactly, rounded := []string{exact(fair)}, []int{}
	for _, allocation := range allocations {
		exactly = append(exactly, exact(allocation))
		rounded = append(rounded, int(math.Round(allocation)))
	}
	if bits {
		return exactly, nil
	}
	return rounded, nil
}

// class says whether a rounding of one of the last bits may decide over a limit.
func (in apfAllocationInput) class() string {
	limits, ok := referenceAllocation(in)
	switch {
	case !ok:
		return "no allocation"
	case slices.ContainsFunc(limits, nextToHalf):
		return "a limit next to a half"
	}
	return "ordinary limits"
}

// bitsClass is the class of the floats: their last bits differ with any seats.
func (in apfAllocationInput) bitsClass() string {
	if _, ok := referenceAllocation(in); !ok {
		return "no allocation"
	}
	return "seats"
}

// class says whether the sum of the shares is that of a realistic configuration.
func (in apfLimitsInput) class() string {
	sum := int64(0)
	for _, level := range in.Levels {
		sum += int64(level.Shares)
	}
	if sum > 1<<20 {
		return "shares beyond 2^20"
	}
	return "ordinary shares"
}

// apfDemandClass says whether seats and pauses are in the range of a server.
func apfDemandClass(steps []apfStep) string {
	for _, step := range steps {
		if step.Pause < 0 || step.Pause > 1<<40 || step.Seats < 0 || step.Seats > 1<<20 {
			return "extreme seats or pauses"
		}
	}
	return "ordinary seats"
}

// apfStep sets a number of seats in use after a pause in nanoseconds.
type apfStep struct {
	Pause int64 `json:"pause"`
	Seats int32 `json:"seats"`
}

func defineAllocationSubjects() {
	generate := func(r *random) apfAllocationInput {
		in := apfAllocationInput{}
		for range r.between(2, 8) {
			lower := int32(r.below(100))
			level := apfLevel{Target: pick(r, []int64{int64(r.below(200)) * 1_000_000_000, int64(r.below(200_000_000_000))}), Lower: lower, Upper: lower + int32(r.below(400))}
			in.Levels = append(in.Levels, level)
			in.Sum += lower + int32(r.below(100))
		}
		return in
	}
	define(definition[apfAllocationInput]{
		name:     "apf.allocation",
		about:    "k8s.io/apiserver/pkg/util/flowcontrol computeConcurrencyAllocation: current limits of priority levels that borrow seats",
		generate: generate, class: apfAllocationInput.class,
		evaluate: func(in apfAllocationInput) (any, error) { return evaluateAPFAllocation(in, false) },
	})
	define(definition[apfAllocationInput]{
		name:     "apf.allocation-bits",
		about:    "k8s.io/apiserver/pkg/util/flowcontrol computeConcurrencyAllocation: the floats before they are rounded to limits",
		generate: generate, class: apfAllocationInput.bitsClass,
		evaluate: func(in apfAllocationInput) (any, error) { return evaluateAPFAllocation(in, true) },
	})
	define(definition[apfLimitsInput]{
		name:  "apf.limits",
		about: "k8s.io/apiserver/pkg/util/flowcontrol: nominal, minimal, maximal and current limits and seats of priority levels",
		generate: func(r *random) apfLimitsInput {
			in := apfLimitsInput{Server: int32(r.between(1, 3000))}
			for range r.between(1, 6) {
				share := int32(r.between(0, 200))
				if r.chance(10) {
					share = r.int32() & math.MaxInt32
				}
				in.Levels = append(in.Levels, apfShares{share, int32(r.between(0, 100)), optional(r, r.replicas()),
					int32(r.between(1, 10))})
			}
			return in
		},
		evaluate: evaluateAPFLimits,
		class:    apfLimitsInput.class,
	})
	define(definition[[]apfStep]{
		name:  "apf.demand",
		about: "k8s.io/apiserver/pkg/util/flowcontrol: integrals of seat demand over time, their deviation, and smoothed demand",
		generate: func(r *random) []apfStep {
			steps := []apfStep{}
			for range r.between(1, 8) {
				steps = append(steps, apfStep{int64(r.below(1 << r.between(1, 34))),
					int32(r.below(1 << r.between(1, 12)))})
			}
			return steps
		},
		evaluate: func(steps []apfStep) (any, error) {
			clock := testclock.NewFakePassiveClock(controllerTime)
			now, stats := controllerTime, apfStats{}
			integrator := fairqueuing.NewNamedIntegrator(clock, "")
			for i, step := range steps {
				now = now.Add(time.Duration(step.Pause))
				clock.SetTime(now)
				integrator.Set(float64(step.Seats))
				if i%3 == 2 {
					apfUpdateStats(&stats, integrator.Reset())
				}
			}
			results := integrator.GetResults()
			apfUpdateStats(&stats, results)
			return []any{exact(results.Duration), exact(results.Average), exact(results.Deviation),
				exact(stats.smoothed), stats.highWatermark}, nil
		},
		class: apfDemandClass,
	})
}

// ---- Work of requests ----

type apfWorkInput struct {
	Seats int32 `json:"seats"`
	// Nanoseconds is a duration.
	Nanoseconds int64 `json:"nanoseconds"`
}

// apfRequestInput is a request and the state of the server that its estimate depends on.
type apfRequestInput struct {
	Verb    string            `json:"verb"`
	Name    string            `json:"name"`
	Query   map[string]string `json:"query"`
	Objects int64             `json:"objects"`
	Size    int64             `json:"size"`
	Watches int               `json:"watches"`
	Max     uint64            `json:"max"`
}

// class is the verb; the memory of a list is the product of two int64.
func (in apfRequestInput) class() string {
	if high, low := bits.Mul64(uint64(in.Objects), uint64(in.Size)); high > 0 || low > math.MaxInt64 {
		return in.Verb + ", memory beyond int64"
	}
	return in.Verb
}

func evaluateAPFRequest(in apfRequestInput) (any, error) {
	if in.Objects < 0 || in.Size < 0 || in.Watches < 0 {
		return nil, errNotAnInput
	}
	estimator := fcrequest.NewWorkEstimator(
		func(string) (storage.Stats, error) {
			return storage.Stats{ObjectCount: in.Objects, EstimatedAverageObjectSizeBytes: in.Size}, nil
		},
		func(*apirequest.RequestInfo) int { return in.Watches },
		fcrequest.DefaultWorkEstimatorConfig(), func(string) uint64 { return in.Max })
	query := url.Values{}
	for key, value := range in.Query {
		query.Set(key, value)
	}
	info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: in.Verb, APIVersion: "v1", Resource: "pods",
		Namespace: "default", Name: in.Name}
	request := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/api/v1/pods",
		RawQuery: query.Encode()}}).WithContext(
		apirequest.WithRequestInfo(context.Background(), info))
	estimate := estimator.EstimateWork(request, "schema", "level")
	return []any{estimate.InitialSeats, estimate.FinalSeats, estimate.AdditionalLatency}, nil
}

func defineEstimateSubjects() {
	define(definition[apfWorkInput]{
		name:  "apf.seat-seconds",
		about: "k8s.io/apiserver/pkg/util/flowcontrol/request: seat-seconds from seats and durations, and back",
		generate: func(r *random) apfWorkInput {
			return apfWorkInput{int32(r.below(1 << r.between(1, 20))), int64(r.uint64() >> r.between(20, 63))}
		},
		evaluate: func(in apfWorkInput) (any, error) {
			// Seats and durations of requests are not negative.
			if in.Seats < 0 || in.Nanoseconds < 0 {
				return nil, errNotAnInput
			}
			work := fcrequest.SeatsTimesDuration(float64(in.Seats), time.Duration(in.Nanoseconds))
			return []any{work, work.String(), exact(work.ToFloat()), work.DurationPerSeat(float64(in.Seats + 1)),
				work.DurationPerSeat(10)}, nil
		},
	})
	define(definition[apfRequestInput]{
		name:  "apf.estimate",
		about: "k8s.io/apiserver/pkg/util/flowcontrol/request NewWorkEstimator: seats of lists, watches and writes",
		generate: func(r *random) apfRequestInput {
			in := apfRequestInput{Verb: pick(r, []string{"list", "list", "watch", "create", "update", "patch",
				"delete", "get"}),
				Query: map[string]string{}, Objects: int64(r.below(1 << r.between(1,
					40))), Size: int64(r.below(1 << r.between(1, 32))),
				Watches: r.below(1 << r.between(1, 30)), Max: uint64(r.below(20))}
			if r.chance(20) {
				in.Name = r.name()
			}
			for _, key := range []string{"limit", "resourceVersion", "labelSelector", "fieldSelector", "continue",
				"sendInitialEvents", "resourceVersionMatch"} {
				if r.chance(30) {
					in.Query[key] = pick(r, []string{"0", fmt.Sprint(r.int64()), fmt.Sprint(r.below(1000)), "a=b",
						"true", "Exact"})
				}
			}
			return in
		},
		evaluate: evaluateAPFRequest,
		class:    apfRequestInput.class,
	})
}

// apfNoFuzz spares each clock a generator: without fuzz it is never used.
var apfNoFuzz = rand.New(rand.NewSource(1))

// ---- Queues ----

type apfDealInput struct {
	Deck          int    `json:"deck"`
	Hand          int    `json:"hand"`
	Schema        string `json:"schema"`
	Distinguisher string `json:"distinguisher"`
}

// apfEvent is an arrival or, if Finish is not nil, the end of the oldest executing request of that index.
type apfEvent struct {
	// Pause is the time since the previous event in nanoseconds.
	Pause   int64  `json:"pause"`
	Finish  *int   `json:"finish,omitempty"`
	Hash    uint64 `json:"hash"`
	Initial uint64 `json:"initial"`
	Final   uint64 `json:"final"`
	Latency int64  `json:"latency"`
}

type apfQueueInput struct {
	Queues int        `json:"queues"`
	Hand   int        `json:"hand"`
	Length int        `json:"length"`
	Limit  int        `json:"limit"`
	Events []apfEvent `json:"events"`
}

//go:linkname apfFinish k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset.(*queueSet).finishRequestAndDispatchAsMuchAsPossible
func apfFinish(set, request unsafe.Pointer) bool

// apfNoGauge ignores metrics.
type apfNoGauge struct{}

func (apfNoGauge) Set(float64)            {}
func (apfNoGauge) Inc()                   {}
func (apfNoGauge) Dec()                   {}
func (apfNoGauge) Add(float64)            {}
func (apfNoGauge) SetToCurrentTime()      {}
func (apfNoGauge) SetDenominator(float64) {}

// evaluateAPFQueues plays the events and reports the queues after each.
func evaluateAPFQueues(in apfQueueInput) (any, error) {
	if in.Queues < 1 || in.Queues > 64 || in.Limit < 1 || in.Length < 1 {
		return nil, errNotAnInput
	}
	clock, _ := eventclock.NewFake(controllerTime, 0, apfNoFuzz)
	gauges := fcmetrics.RatioedGaugePair{RequestsWaiting: apfNoGauge{}, RequestsExecuting: apfNoGauge{}}
	config := fairqueuing.QueuingConfig{Name: "level", DesiredNumQueues: in.Queues, HandSize: in.Hand,
		QueueLengthLimit: in.Length}
	completer, err := queueset.NewQueueSetFactory(clock).BeginConstruction(config, gauges, apfNoGauge{}, apfNoGauge{})
	if err != nil {
		return nil, err
	}
	set := completer.Complete(fairqueuing.DispatchingConfig{ConcurrencyLimit: in.Limit,
		ConcurrencyDenominator: in.Limit})
	requests, now, answer := []fairqueuing.Request{}, controllerTime, []string{}
	for i, event := range in.Events {
		// A request needs a seat and at most as many as the limit.
		if event.Pause < 0 || event.Latency < 0 || event.Initial < 1 || max(event.Initial,
			event.Final) > uint64(in.Limit) {
			return nil, errNotAnInput
		}
		now = now.Add(time.Duration(event.Pause))
		clock.SetTime(now)
		if event.Finish != nil {
			requests = apfFinishOne(set, requests, *event.Finish)
		} else {
			work := &fcrequest.WorkEstimate{InitialSeats: event.Initial, FinalSeats: event.Final,
				AdditionalLatency: time.Duration(event.Latency)}
			if request, _ := set.StartRequest(context.Background(), work, event.Hash, "", fmt.Sprint(i), "", "",
				func(bool) {}); !reflect.ValueOf(request).IsNil() {
				requests = append(requests, request)
			}
		}
		dump := set.Dump(false)
		answer = append(answer, fmt.Sprint(reflect.ValueOf(set).Elem().FieldByName("currentR").Uint(), dump.Waiting,
			dump.Executing, dump.SeatsInUse, dump.Rejected))
	}
	for _, queue := range set.Dump(false).Queues {
		answer = append(answer, fmt.Sprint(queue.NextDispatchR, queue.QueueSum, queue.SeatsInUse))
	}
	return answer, nil
}

// apfFinishOne ends the executing request of the index, counted modulo the number of executing requests.
func apfFinishOne(set fairqueuing.QueueSet, requests []fairqueuing.Request, index int) []fairqueuing.Request {
	executing := []int{}
	for i, request := range requests {
		if !reflect.ValueOf(request).Elem().FieldByName("startTime").FieldByName("wall").IsZero() ||
			!reflect.ValueOf(request).Elem().FieldByName("startTime").FieldByName("ext").IsZero() {
			executing = append(executing, i)
		}
	}
	if len(executing) == 0 {
		return requests
	}
	i := executing[(index%len(executing)+len(executing))%len(executing)]
	apfFinish(reflect.ValueOf(set).UnsafePointer(), reflect.ValueOf(requests[i]).UnsafePointer())
	return append(requests[:i:i], requests[i+1:]...)
}

func (r *random) apfQueues() apfQueueInput {
	in := apfQueueInput{Queues: r.between(1, 12), Length: r.between(1, 6), Limit: r.between(1, 12)}
	in.Hand = r.between(1, min(4, in.Queues))
	for range r.between(3, 24) {
		event := apfEvent{Pause: int64(r.below(1 << r.between(1, 36))), Hash: r.uint64(),
			Initial: uint64(r.between(1, in.Limit))}
		if r.chance(20) {
			event.Final, event.Latency = uint64(r.between(0, in.Limit)), int64(r.below(1<<r.between(1, 30)))
		}
		if r.chance(45) {
			event.Finish = ptrTo(r.below(10))
		}
		in.Events = append(in.Events, event)
	}
	return in
}

func defineQueuingSubjects() {
	define(definition[apfDealInput]{
		name:  "apf.shuffle",
		about: "k8s.io/apiserver/pkg/util/shufflesharding and flow hashes: entropy by logarithm, hands of queues by division",
		generate: func(r *random) apfDealInput {
			deck := r.below(1 << r.between(1, 27))
			if r.chance(30) {
				deck = 1<<r.below(27) + r.between(-1, 1)
			}
			return apfDealInput{deck, r.between(0, 16), r.name(), r.text()}
		},
		evaluate: func(in apfDealInput) (any, error) {
			hash := apfHashFlow(in.Schema, in.Distinguisher)
			dealer, err := shufflesharding.NewDealer(in.Deck, in.Hand)
			if err != nil {
				return nil, err
			}
			return map[string]any{"hash": fmt.Sprint(hash), "bits": shufflesharding.RequiredEntropyBits(in.Deck,
				in.Hand), "hand": dealer.DealIntoHand(hash, nil)}, nil
		},
	})
	define(definition[apfQueueInput]{
		name:     "apf.queues",
		about:    "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset: virtual time and order of dispatch",
		generate: (*random).apfQueues,
		evaluate: evaluateAPFQueues,
	})
}
