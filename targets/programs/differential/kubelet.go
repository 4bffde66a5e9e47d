// Subjects about kubelet: cgroup values, out-of-memory scores, eviction, swap, preemption; and about client-go's
// delays.
package main

import (
	"fmt"
	"math"
	"slices"
	"time"
	_ "unsafe" // for go:linkname

	"golang.org/x/time/rate"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/workqueue"
	apiresource "k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/preemption"
	"k8s.io/kubernetes/pkg/kubelet/qos"
)

// Packages whose unexported functions are linked below.
var (
	_ cpumanager.Manager
	_ images.ImageGCManager
	_ kuberuntime.KubeGenericRuntime
	_ preemption.CriticalPodAdmissionHandler
)

func init() {
	defineCgroupSubjects()
	defineMemorySubjects()
	defineDelaySubjects()
}

// ---- cgroups and the downward API ----

// podInput is a pod with resources by container.
type podInput struct {
	Containers []containerInput `json:"containers"`
	// Node is the memory of the node in bytes, Period the CPU period in microseconds.
	Node   int64  `json:"node"`
	Period uint64 `json:"period"`
}

// containerInput has quantities as texts.
type containerInput struct {
	Requests map[core.ResourceName]string `json:"requests"`
	Limits   map[core.ResourceName]string `json:"limits"`
}

// podQuantity returns a quantity as pods have it: mostly ordinary, sometimes extreme, never negative.
func (r *random) podQuantity(name core.ResourceName) string {
	if r.chance(15) {
		return fmt.Sprintf("%d%s", r.int64()&math.MaxInt64, pick(r, []string{"", "m", "k", "n"}))
	}
	if name == core.ResourceCPU {
		return pick(r, []string{fmt.Sprintf("%dm", r.between(0, 64_000)), fmt.Sprintf("0.%03d", r.below(1000)),
			fmt.Sprint(r.between(0, 256)),
			fmt.Sprintf("%du", r.below(1_000_000))})
	}
	return fmt.Sprintf("%d%s", r.between(0, 5000), pick(r, []string{"", "k", "M", "Ki", "Mi", "Gi", "m"}))
}

var podResources = []core.ResourceName{core.ResourceCPU, core.ResourceMemory, core.ResourceEphemeralStorage,
	"hugepages-2Mi", "hugepages-1Gi"}

func (r *random) pod() podInput {
	in := podInput{Node: int64(r.between(1, 1<<40)), Period: uint64(r.between(1000, 1_000_000))}
	for range r.between(1, 3) {
		c := containerInput{map[core.ResourceName]string{}, map[core.ResourceName]string{}}
		for _, name := range podResources {
			if r.chance(60) {
				c.Requests[name] = r.podQuantity(name)
			}
			if r.chance(60) {
				c.Limits[name] = r.podQuantity(name)
			}
		}
		in.Containers = append(in.Containers, c)
	}
	return in
}

// quantities parses quantities; validation of pods refuses negative ones.
func quantities(texts map[core.ResourceName]string) (core.ResourceList, error) {
	list := core.ResourceList{}
	for name, text := range texts {
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 {
			return nil, errNotAnInput
		}
		list[name] = q
	}
	return list, nil
}

func (in podInput) pod() (*core.Pod, error) {
	pod := &core.Pod{}
	for i, c := range in.Containers {
		requests, err := quantities(c.Requests)
		if err != nil {
			return nil, err
		}
		limits, err := quantities(c.Limits)
		if err != nil {
			return nil, err
		}
		pod.Spec.Containers = append(pod.Spec.Containers, core.Container{Name: fmt.Sprint("c", i),
			Resources: core.ResourceRequirements{Requests: requests, Limits: limits}})
	}
	if len(pod.Spec.Containers) == 0 || in.Node < 1 || in.Period < 1 {
		return nil, errNotAnInput
	}
	return pod, nil
}

func evaluateCgroup(in podInput) (any, error) {
	pod, err := in.pod()
	if err != nil {
		return nil, err
	}
	config := cm.ResourceConfigForPod(pod, true, in.Period, false, "")
	scores, cpu := []int{}, []any{}
	for _, c := range pod.Spec.Containers {
		scores = append(scores, qos.GetContainerOOMScoreAdjust(pod, &c, in.Node))
		request, limit := c.Resources.Requests.Cpu().MilliValue(), c.Resources.Limits.Cpu().MilliValue()
		shares := cm.MilliCPUToShares(request)
		quota := cm.MilliCPUToQuota(limit, int64(in.Period))
		cpu = append(cpu, shares, quota, cm.SharesToMilliCPU(int64(shares)),
			cm.QuotaToMilliCPU(quota, int64(in.Period)))
	}
	return map[string]any{"config": config, "oom": scores, "cpu": cpu}, nil
}

// extreme is true if a quantity of the pod is beyond what its milli value can express.
func (in podInput) extreme() bool {
	for _, c := range in.Containers {
		for _, list := range []map[core.ResourceName]string{c.Requests, c.Limits} {
			for _, text := range list {
				if q, err := resource.ParseQuantity(text); err == nil && q.Value() > resource.MaxMilliValue/1000 {
					return true
				}
			}
		}
	}
	return false
}

func (in podInput) class() string {
	if in.extreme() {
		return "quantity beyond 9e12"
	}
	return "ordinary quantities"
}

// fieldInput is a resourceFieldRef of the downward API.
type fieldInput struct {
	Resource string `json:"resource"`
	Divisor  string `json:"divisor"`
	Value    string `json:"value"`
}

var fieldResources = []string{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi"}

// The divisors that validation accepts for CPUs and for bytes.
var (
	cpuDivisors  = []string{"0", "1", "1m"}
	byteDivisors = []string{"0", "1", "1k", "1Ki", "1M", "1Mi", "1G", "1Gi", "1T", "1Ti", "1P", "1Pi", "1E", "1Ei"}
)

func defineCgroupSubjects() {
	define(definition[podInput]{
		name:     "kubelet.cgroup",
		about:    "pkg/kubelet/cm and pkg/kubelet/qos: CPU shares, quotas, memory and huge page limits, out-of-memory scores",
		generate: (*random).pod,
		evaluate: evaluateCgroup,
		class:    podInput.class,
	})
	define(definition[fieldInput]{
		name:  "kubelet.downward-api",
		about: "pkg/api/v1/resource ExtractContainerResourceValue: a quantity divided and rounded up for an environment variable",
		generate: func(r *random) fieldInput {
			name, divisors := pick(r, fieldResources), byteDivisors
			if name == "cpu" {
				divisors = cpuDivisors
			}
			return fieldInput{name, pick(r, divisors), r.podQuantity(core.ResourceName(name))}
		},
		evaluate: func(in fieldInput) (any, error) {
			list, err := quantities(map[core.ResourceName]string{core.ResourceName(in.Resource): in.Value})
			if err != nil {
				return nil, err
			}
			divisor, err := resource.ParseQuantity(in.Divisor)
			accepted := byteDivisors
			if in.Resource == "cpu" {
				accepted = cpuDivisors
			}
			if err != nil || !slices.Contains(accepted, in.Divisor) {
				return nil, errNotAnInput
			}
			container := &core.Container{Resources: core.ResourceRequirements{Requests: list}}
			return apiresource.ExtractContainerResourceValue(&core.ResourceFieldSelector{Resource: "requests." +
				in.Resource, Divisor: divisor}, container)
		},
		class: func(in fieldInput) string {
			if in.Resource == "cpu" {
				return "cpu"
			}
			return "bytes"
		},
	})
}

// ---- Memory, eviction, swap, preemption ----

//go:linkname kubeletSwap k8s.io/kubernetes/pkg/kubelet/kuberuntime.calcSwapForBurstablePods
func kubeletSwap(request, node, swap int64) (int64, error)

//go:linkname kubeletDeviation k8s.io/kubernetes/pkg/kubelet/cm/cpumanager.standardDeviation
func kubeletDeviation(values []int) float64

//go:linkname kubeletDistance k8s.io/kubernetes/pkg/kubelet/preemption.admissionRequirementList.distance
func kubeletDistance(requirements []*kubeletRequirement, pod *core.Pod) float64

//go:linkname kubeletImageSize k8s.io/kubernetes/pkg/kubelet/images.formatSize
func kubeletImageSize(size int64) string

// kubeletRequirement has the layout of pkg/kubelet/preemption's admissionRequirement.
type kubeletRequirement struct {
	name     core.ResourceName
	quantity int64
}

type evictionInput struct {
	Threshold string `json:"threshold"`
	Reclaim   string `json:"reclaim"`
	Capacity  int64  `json:"capacity"`
}

func evaluateEviction(in evictionInput) (any, error) {
	if in.Capacity < 0 {
		return nil, errNotAnInput
	}
	signal := string(evictionapi.SignalMemoryAvailable)
	thresholds, err := eviction.ParseThresholdConfig(nil, map[string]string{signal: in.Threshold}, nil, nil,
		map[string]string{signal: in.Reclaim})
	if err != nil {
		return nil, err
	}
	capacity, answer := resource.NewQuantity(in.Capacity, resource.BinarySI), []string{}
	for _, threshold := range thresholds {
		values := []evictionapi.ThresholdValue{threshold.Value}
		if threshold.MinReclaim != nil {
			values = append(values, *threshold.MinReclaim)
		}
		for _, value := range values {
			answer = append(answer, exact(float64(value.Percentage)), evictionapi.GetThresholdQuantity(value,
				capacity).String())
		}
	}
	return answer, nil
}

// memoryInput has bytes of a request, of the node and of its swap; counts of CPUs by NUMA node; and needs of a
// critical pod.
type memoryInput struct {
	Request int64            `json:"request"`
	Node    int64            `json:"node"`
	Swap    int64            `json:"swap"`
	Counts  []int            `json:"counts"`
	Needs   map[string]int64 `json:"needs"`
	Pod     podInput         `json:"pod"`
}

func evaluateMemory(in memoryInput) (any, error) {
	pod, err := in.Pod.pod()
	if err != nil {
		return nil, err
	}
	names := []string{}
	for name, quantity := range in.Needs {
		// Only positive needs are requirements.
		if quantity < 1 {
			return nil, errNotAnInput
		}
		names = append(names, name)
	}
	// The sum of floats depends on the order.
	slices.Sort(names)
	needs := []*kubeletRequirement{}
	for _, name := range names {
		needs = append(needs, &kubeletRequirement{core.ResourceName(name), in.Needs[name]})
	}
	swap, err := kubeletSwap(in.Request, in.Node, in.Swap)
	return map[string]any{"swap": swap, "error": fmt.Sprint(err), "deviation": exact(kubeletDeviation(in.Counts)),
		"distance": exact(kubeletDistance(needs, pod)), "size": kubeletImageSize(in.Request)}, nil
}

func defineMemorySubjects() {
	define(definition[evictionInput]{
		name:  "kubelet.eviction",
		about: "pkg/kubelet/eviction: thresholds from percentages (float32) and quantities",
		generate: func(r *random) evictionInput {
			threshold := func() string {
				return pick(r, []string{fmt.Sprintf("%d%%", r.between(0, 101)),
					fmt.Sprintf("%d.%d%%", r.between(0, 100), r.below(10_000)),
					r.podQuantity(core.ResourceMemory), r.quantity()})
			}
			return evictionInput{threshold(), threshold(), pick(r, []int64{int64(r.between(1, 1<<40)),
				r.int64() & math.MaxInt64})}
		},
		evaluate: evaluateEviction,
		class: func(in evictionInput) string {
			if in.Capacity > 1<<62 {
				return "capacity beyond 2^62"
			}
			return "ordinary capacity"
		},
	})
	define(definition[memoryInput]{
		name:  "kubelet.memory",
		about: "pkg/kubelet: swap of burstable pods, deviation of CPUs between NUMA nodes, distance of preempted pods, printed image sizes",
		generate: func(r *random) memoryInput {
			in := memoryInput{Node: int64(r.between(1, 1<<42)), Swap: int64(r.between(1, 1<<42)),
				Needs: map[string]int64{}, Pod: r.pod()}
			in.Request = int64(r.uint64() % uint64(in.Node+1))
			for range r.between(1, 8) {
				in.Counts = append(in.Counts, r.below(128))
			}
			for _, name := range podResources[:3] {
				if r.chance(70) {
					in.Needs[string(name)] = int64(r.between(1, 1<<r.between(1, 40)))
				}
			}
			return in
		},
		evaluate: evaluateMemory,
	})
}

// ---- Delays of clients ----

// clientBackoffInput has the delays of a rate limiter in milliseconds and seconds, as controllers choose them.
type clientBackoffInput struct {
	Base     int64 `json:"base"`
	Max      int64 `json:"max"`
	Failures int   `json:"failures"`
}

// clientLimiterInput is a token bucket and the times of its requests in nanoseconds after each other.
type clientLimiterInput struct {
	// QPS is in thousandths.
	QPS    int64   `json:"qps"`
	Burst  int     `json:"burst"`
	Pauses []int64 `json:"pauses"`
	Tokens []int   `json:"tokens"`
}

func evaluateLimiter(in clientLimiterInput) (any, error) {
	if len(in.Pauses) != len(in.Tokens) || in.QPS < 1 || in.Burst < 1 {
		return nil, errNotAnInput
	}
	limiter, now, answer := rate.NewLimiter(rate.Limit(float64(in.QPS)/1000), in.Burst), controllerTime, []string{}
	for i, pause := range in.Pauses {
		if pause < 0 || in.Tokens[i] < 0 {
			return nil, errNotAnInput
		}
		now = now.Add(time.Duration(pause))
		reservation := limiter.ReserveN(now, in.Tokens[i])
		answer = append(answer, fmt.Sprint(reservation.OK(), int64(reservation.DelayFrom(now))),
			exact(limiter.TokensAt(now)))
	}
	return answer, nil
}

func defineDelaySubjects() {
	define(definition[clientBackoffInput]{
		name:  "client.backoff",
		about: "k8s.io/client-go/util/workqueue exponential delays: a power of two as float, limited",
		generate: func(r *random) clientBackoffInput {
			return clientBackoffInput{int64(r.between(1, 60_000)), int64(r.between(1, 30_000)), r.between(1, 200)}
		},
		evaluate: func(in clientBackoffInput) (any, error) {
			if in.Failures > 5000 || in.Base < 1 || in.Base > math.MaxInt32 || in.Max < 1 || in.Max > math.MaxInt32 {
				return nil, errNotAnInput
			}
			limiter, delays := workqueue.NewTypedItemExponentialFailureRateLimiter[string](
				time.Duration(in.Base)*time.Millisecond, time.Duration(in.Max)*time.Second), []int64{}
			for range in.Failures {
				delays = append(delays, int64(limiter.When("")))
			}
			return delays, nil
		},
	})
	define(definition[clientLimiterInput]{
		name:  "client.limiter",
		about: "golang.org/x/time/rate, which limits the requests of clients and the evictions of controllers: delays and tokens",
		generate: func(r *random) clientLimiterInput {
			in := clientLimiterInput{QPS: int64(r.between(1, 1<<r.between(1, 20))), Burst: r.between(1, 200)}
			for range r.between(1, 10) {
				in.Pauses, in.Tokens = append(in.Pauses, int64(r.below(1<<r.between(1, 34)))), append(in.Tokens,
					r.between(0, 20))
			}
			return in
		},
		evaluate: evaluateLimiter,
	})
}
