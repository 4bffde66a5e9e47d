// Subjects about scores of kube-scheduler's plugins.
package main

import (
	"context"
	"fmt"
	"math"
	_ "unsafe" // for go:linkname

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/imagelocality"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
)

// Packages whose unexported functions are linked below.
var (
	_ imagelocality.ImageLocality
	_ noderesources.Fit
	_ volumebinding.VolumeBinding
)

func init() {
	defineResourceScoreSubjects()
	defineSpreadSubjects()
	defineOtherScoreSubjects()
}

// ---- Resources of nodes ----

// scoreFunction returns a score from requested, allocated and allocatable amounts of resources.
type scoreFunction = func(requested, allocated, allocatable []int64) int64

//go:linkname scoreLeast k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.leastResourceScorer
func scoreLeast(resources []config.ResourceSpec) scoreFunction

//go:linkname scoreMost k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.mostResourceScorer
func scoreMost(resources []config.ResourceSpec) scoreFunction

//go:linkname scoreRatio k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.requestedToCapacityRatioScorer
func scoreRatio(resources []config.ResourceSpec, shape []config.UtilizationShapePoint) scoreFunction

//go:linkname scoreBalanced k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.balancedResourceScorer
func scoreBalanced(requested, allocated, allocatable []int64) int64

// nodeResource is a resource of a node with the request of the pod.
type nodeResource struct {
	Weight      int64 `json:"weight"`
	Request     int64 `json:"request"`
	Allocated   int64 `json:"allocated"`
	Allocatable int64 `json:"allocatable"`
}

// shapePoint is a point of a RequestedToCapacityRatio function.
type shapePoint struct {
	Utilization int32 `json:"utilization"`
	Score       int32 `json:"score"`
}

type nodeResourcesInput struct {
	Resources []nodeResource `json:"resources"`
	Shape     []shapePoint   `json:"shape"`
}

func (r *random) nodeResource() nodeResource {
	resource := nodeResource{Weight: int64(r.between(1, 100))}
	switch r.below(5) {
	case 0: // CPUs in thousandths
		resource.Allocatable = int64(r.between(1, 256_000))
	case 1: // memory
		resource.Allocatable = int64(r.between(1, 1<<40))
	case 2: // devices
		resource.Allocatable = int64(r.below(20))
	case 3:
		resource.Allocatable = r.int64() & math.MaxInt64
	default:
		resource.Allocatable = int64(r.between(1, 64)) * 1000
	}
	resource.Request = int64(r.uint64()%uint64(resource.Allocatable+1)) >> r.below(8)
	resource.Allocated = int64(r.uint64() % uint64(resource.Allocatable-resource.Request+1))
	return resource
}

func (r *random) nodeResources() nodeResourcesInput {
	in, size := nodeResourcesInput{}, pick(r, []int64{10, 20, 25, 40, 50, 64, 100, 1000})
	even, count := r.chance(40), r.between(1, 5)
	// Two pairs of equal resources: their deviation is half of the difference, which is often a whole percentage.
	paired := even && r.chance(50)
	if paired {
		count = 4
	}
	for i := range count {
		resource := r.nodeResource()
		switch {
		case paired && i > 1:
			resource = in.Resources[i-2]
		case even:
			// Fractions such as 0.1, with which a standard deviation is next to a whole percentage.
			resource.Allocatable, resource.Request = size, int64(r.below(int(size/2)))
			resource.Allocated = int64(r.below(int(size / 2)))
		}
		in.Resources = append(in.Resources, resource)
	}
	utilization := r.between(0, 30)
	for range r.between(1, 4) {
		in.Shape = append(in.Shape, shapePoint{int32(utilization), int32(r.between(0, 10))})
		utilization += r.between(1, 20)
	}
	return in
}

// validShape is true if the points are those of a function: validation requires increasing utilization.
func validShape(points []shapePoint) bool {
	for i := range points[min(1, len(points)):] {
		if points[i+1].Utilization <= points[i].Utilization {
			return false
		}
	}
	return len(points) > 0
}

func evaluateNodeResources(in nodeResourcesInput) (any, error) {
	var specs []config.ResourceSpec
	var requested, allocated, allocatable []int64
	for i, resource := range in.Resources {
		// Validation limits weights to 1 to 100; amounts are not negative, and a node that fits has enough left.
		if resource.Weight < 1 || resource.Weight > 100 || resource.Request < 0 || resource.Allocated < 0 ||
			resource.Allocatable-resource.Allocated < resource.Request {
			return nil, errNotAnInput
		}
		specs = append(specs, config.ResourceSpec{Name: fmt.Sprint(i), Weight: resource.Weight})
		requested = append(requested, resource.Allocated+resource.Request)
		allocated = append(allocated, resource.Allocated)
		allocatable = append(allocatable, resource.Allocatable)
	}
	if !validShape(in.Shape) {
		return nil, errNotAnInput
	}
	var shape []config.UtilizationShapePoint
	for _, point := range in.Shape {
		shape = append(shape, config.UtilizationShapePoint{Utilization: point.Utilization, Score: point.Score})
	}
	return map[string]int64{"least": scoreLeast(specs)(requested, allocated, allocatable),
		"most":  scoreMost(specs)(requested, allocated, allocatable),
		"ratio": scoreRatio(specs, shape)(requested, allocated, allocatable), "balanced": scoreBalanced(requested,
			allocated, allocatable)}, nil
}

func defineResourceScoreSubjects() {
	define(definition[nodeResourcesInput]{
		name:     "scheduler.resources",
		about:    "pkg/scheduler noderesources: LeastAllocated, MostAllocated, RequestedToCapacityRatio and BalancedAllocation of a node",
		generate: (*random).nodeResources,
		evaluate: evaluateNodeResources,
		class: func(in nodeResourcesInput) string {
			for _, resource := range in.Resources {
				if resource.Allocatable > math.MaxInt64/100 {
					return "amount times 100 beyond int64"
				}
			}
			return "ordinary amounts"
		},
	})
}

// ---- Spreading and affinity ----

// spreadNode is a node of a zone with numbers of pods that match the incoming pod's selector.
type spreadNode struct {
	Zone string `json:"zone"`
	Rack string `json:"rack"`
	Pods int    `json:"pods"`
}

// spreadConstraint is a soft topology constraint of the incoming pod.
type spreadConstraint struct {
	Key  string `json:"key"`
	Skew int32  `json:"skew"`
	// Weight is the weight of a preferred affinity term to the same topology; a negative weight means anti-affinity.
	Weight int32 `json:"weight"`
}

type spreadInput struct {
	Nodes       []spreadNode       `json:"nodes"`
	Constraints []spreadConstraint `json:"constraints"`
}

var spreadKeys = []string{core.LabelTopologyZone, core.LabelHostname, "rack"}

func (r *random) spread() spreadInput {
	in := spreadInput{}
	zones, racks := r.between(1, 5), r.between(1, 6)
	for range r.between(1, 8) {
		in.Nodes = append(in.Nodes, spreadNode{fmt.Sprint("zone-", r.below(zones)),
			fmt.Sprint("rack-", r.below(racks)), r.below(1 << r.between(0, 5))})
	}
	for _, key := range spreadKeys {
		if r.chance(60) {
			in.Constraints = append(in.Constraints, spreadConstraint{key, max(1, r.replicas()), int32(r.between(-100,
				100))})
		}
	}
	return in
}

// spreadObjects returns the incoming pod, the nodes and the pods on them.
func (in spreadInput) objects() (*core.Pod, []*core.Node, []*core.Pod, error) {
	selector := &meta.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "incoming", Namespace: "default", Labels: selector.MatchLabels}}
	pod.Spec.Affinity = &core.Affinity{PodAffinity: &core.PodAffinity{}, PodAntiAffinity: &core.PodAntiAffinity{}}
	for _, c := range in.Constraints {
		// Validation requires a positive skew and weights from 1 to 100.
		if c.Skew < 1 || c.Weight > 100 || c.Weight < -100 {
			return nil, nil, nil, errNotAnInput
		}
		pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, core.TopologySpreadConstraint{
			MaxSkew: c.Skew, TopologyKey: c.Key, WhenUnsatisfiable: core.ScheduleAnyway, LabelSelector: selector})
		term := core.WeightedPodAffinityTerm{Weight: max(c.Weight, -c.Weight),
			PodAffinityTerm: core.PodAffinityTerm{LabelSelector: selector, TopologyKey: c.Key}}
		if c.Weight > 0 {
			pod.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
				pod.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, term)
		} else if c.Weight < 0 {
			pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
				pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, term)
		}
	}
	nodes, pods := []*core.Node{}, []*core.Pod{}
	for i, n := range in.Nodes {
		if n.Pods < 0 || n.Pods > 1000 {
			return nil, nil, nil, errNotAnInput
		}
		name := fmt.Sprint("node-", i)
		nodes = append(nodes, &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
			core.LabelTopologyZone: n.Zone, core.LabelHostname: name, "rack": n.Rack}}})
		for range n.Pods {
			pods = append(pods, &core.Pod{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint("pod-", len(pods)),
				Namespace: "default", Labels: selector.MatchLabels},
				Spec: core.PodSpec{NodeName: name}})
		}
	}
	return pod, nodes, pods, nil
}

// noNamespaces is a lister of a cluster whose namespaces have no labels.
type noNamespaces struct{}

func (noNamespaces) List(labels.Selector) ([]*core.Namespace, error) { return nil, nil }
func (noNamespaces) Get(name string) (*core.Namespace, error) {
	return &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name}}, nil
}

var _ corelisters.NamespaceLister = noNamespaces{}

// spreadPlugin is a plugin that scores nodes after all were seen.
type spreadPlugin interface {
	fwk.PreScorePlugin
	fwk.ScorePlugin
	fwk.ScoreExtensions
}

// serial does the work of a plugin in one goroutine, without upstream's metrics.
type serial struct{}

func (serial) Until(_ context.Context, pieces int, work workqueue.DoWorkPieceFunc, _ string) {
	for i := range pieces {
		work(i)
	}
}

// scoreNodes lets a plugin score the nodes of a snapshot, in the order of their names.
func scoreNodes(plugin spreadPlugin, pod *core.Pod, names []*core.Node, snapshot *cache.Snapshot) (any, error) {
	ctx, state, nodes := context.Background(), framework.NewCycleState(), []fwk.NodeInfo{}
	for _, node := range names {
		info, err := snapshot.NodeInfos().Get(node.Name)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, info)
	}
	if status := plugin.PreScore(ctx, state, pod, nodes); !status.IsSuccess() {
		return status.Code().String(), nil
	}
	raw, scores := []int64{}, fwk.NodeScoreList{}
	for _, node := range nodes {
		score, status := plugin.Score(ctx, state, pod, node)
		if !status.IsSuccess() {
			return nil, status.AsError()
		}
		raw = append(raw, score)
		scores = append(scores, fwk.NodeScore{Name: node.Node().Name, Score: score})
	}
	if status := plugin.NormalizeScore(ctx, state, pod, scores); !status.IsSuccess() {
		return nil, status.AsError()
	}
	normalized := []int64{}
	for _, score := range scores {
		normalized = append(normalized, score.Score)
	}
	return map[string][]int64{"raw": raw, "normalized": normalized}, nil
}

func evaluateSpread(in spreadInput) (any, error) {
	pod, nodes, pods, err := in.objects()
	if err != nil {
		return nil, err
	}
	snapshot := cache.NewSnapshot(pods, nodes)
	spread := &podtopologyspread.PodTopologySpread{}
	setField(spread, "sharedLister", snapshot)
	setField(spread, "parallelizer", serial{})
	affinity := &interpodaffinity.InterPodAffinity{}
	setField(affinity, "sharedLister", snapshot)
	setField(affinity, "parallelizer", serial{})
	setField(affinity, "nsLister", noNamespaces{})
	answer := map[string]any{}
	for name, plugin := range map[string]spreadPlugin{"spread": spread, "affinity": affinity} {
		if answer[name], err = scoreNodes(plugin, pod, nodes, snapshot); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

func defineSpreadSubjects() {
	define(definition[spreadInput]{
		name:     "scheduler.spread",
		about:    "pkg/scheduler podtopologyspread and interpodaffinity: scores of nodes, raw and normalized",
		generate: (*random).spread,
		evaluate: evaluateSpread,
		class: func(in spreadInput) string {
			for _, c := range in.Constraints {
				if c.Skew > 1<<24 {
					return "skew beyond 2^24"
				}
			}
			return "ordinary skew"
		},
	})
}

// ---- Images, volumes, normalization ----

//go:linkname scoreImages k8s.io/kubernetes/pkg/scheduler/framework/plugins/imagelocality.sumImageScores
func scoreImages(node fwk.NodeInfo, pod *core.Pod, nodes int) int64

//go:linkname scoreImagePriority k8s.io/kubernetes/pkg/scheduler/framework/plugins/imagelocality.calculatePriority
func scoreImagePriority(sum int64, containers int) int64

//go:linkname scoreVolumes k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding.buildScorerFunction
func scoreVolumes(shape helper.FunctionShape) func(map[string]*volumebinding.StorageResource) int64

// imageInput has the size of each image of the pod, and the number of nodes that have it.
type imageInput struct {
	Sizes []int64 `json:"sizes"`
	Have  []int   `json:"have"`
	Nodes int     `json:"nodes"`
}

func evaluateImages(in imageInput) (any, error) {
	if len(in.Sizes) != len(in.Have) || in.Nodes < 1 {
		return nil, errNotAnInput
	}
	pod, states := &core.Pod{}, map[string]*fwk.ImageStateSummary{}
	for i, size := range in.Sizes {
		// A size is not negative, and at most all nodes have an image.
		if size < 0 || in.Have[i] < 1 || in.Have[i] > in.Nodes {
			return nil, errNotAnInput
		}
		name := fmt.Sprintf("image-%d:1", i)
		pod.Spec.Containers = append(pod.Spec.Containers, core.Container{Image: name})
		states[name] = &fwk.ImageStateSummary{Size: size, NumNodes: in.Have[i]}
	}
	node := framework.NewNodeInfo()
	node.ImageStates = states
	sum := scoreImages(node, pod, in.Nodes)
	return []int64{sum, scoreImagePriority(sum, len(in.Sizes))}, nil
}

// volumeInput has requested and available bytes by storage class, and the shape of the function.
type volumeInput struct {
	Requested []int64      `json:"requested"`
	Capacity  []int64      `json:"capacity"`
	Shape     []shapePoint `json:"shape"`
}

func evaluateVolumes(in volumeInput) (any, error) {
	if len(in.Requested) != len(in.Capacity) || !validShape(in.Shape) {
		return nil, errNotAnInput
	}
	classes, shape := map[string]*volumebinding.StorageResource{}, helper.FunctionShape{}
	for i, requested := range in.Requested {
		if requested < 0 || in.Capacity[i] < 0 {
			return nil, errNotAnInput
		}
		classes[fmt.Sprint(i)] = &volumebinding.StorageResource{Requested: requested, Capacity: in.Capacity[i]}
	}
	for _, point := range in.Shape {
		shape = append(shape, helper.FunctionShapePoint{Utilization: int64(point.Utilization),
			Score: 10 * int64(point.Score)})
	}
	return scoreVolumes(shape)(classes), nil
}

// normalizeInput has raw scores of nodes.
type normalizeInput struct {
	Scores  []int64 `json:"scores"`
	Reverse bool    `json:"reverse"`
}

func defineOtherScoreSubjects() {
	define(definition[imageInput]{
		name:  "scheduler.images",
		about: "pkg/scheduler imagelocality: image sizes scaled by the fraction of nodes that have them",
		generate: func(r *random) imageInput {
			in := imageInput{Nodes: r.between(1, 5000)}
			for range r.between(1, 4) {
				in.Sizes = append(in.Sizes, pick(r, []int64{int64(r.below(3_000_000_000)), r.int64() & math.MaxInt64}))
				in.Have = append(in.Have, r.between(1, in.Nodes))
			}
			return in
		},
		evaluate: evaluateImages,
		class: func(in imageInput) string {
			for _, size := range in.Sizes {
				if size > 1<<53 {
					return "size beyond 2^53"
				}
			}
			return "ordinary sizes"
		},
	})
	define(definition[volumeInput]{
		name:  "scheduler.volumes",
		about: "pkg/scheduler volumebinding: score by capacity of storage classes",
		generate: func(r *random) volumeInput {
			in := volumeInput{Shape: r.nodeResources().Shape}
			for range r.between(1, 4) {
				resource := r.nodeResource()
				in.Requested, in.Capacity = append(in.Requested, resource.Request), append(in.Capacity,
					resource.Allocatable)
			}
			return in
		},
		evaluate: evaluateVolumes,
	})
	define(definition[normalizeInput]{
		name:  "scheduler.normalize",
		about: "pkg/scheduler DefaultNormalizeScore, which NodeAffinity and TaintToleration use",
		generate: func(r *random) normalizeInput {
			in := normalizeInput{Reverse: r.chance(50)}
			for range r.between(1, 6) {
				in.Scores = append(in.Scores, pick(r, []int64{int64(r.below(10_000)), r.int64() & math.MaxInt64}))
			}
			return in
		},
		evaluate: func(in normalizeInput) (any, error) {
			scores := fwk.NodeScoreList{}
			for i, score := range in.Scores {
				// Both plugins count, so that their scores are not negative.
				if score < 0 {
					return nil, errNotAnInput
				}
				scores = append(scores, fwk.NodeScore{Name: fmt.Sprint(i), Score: score})
			}
			status := helper.DefaultNormalizeScore(fwk.MaxNodeScore, in.Reverse, scores)
			return scores, status.AsError()
		},
	})
}
