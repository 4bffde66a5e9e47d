// Client runs informers of client-go on the ConfigMaps of a namespace, with a typed, a dynamic and a metadata client, until
// all of them have delivered the ConfigMap `--marker`. It logs what they deliver, their caches and all requests as JSON lines
// on standard output. The harness compares the log with the store's history; nothing is compared here. It is built with
// client-go of each supported minor.
//
// Usage: client --kubeconfig FILE --namespace NAME --marker NAME [--server URL [--token-file FILE]] [--ready NAME]
// [--watch-list] [--limit DURATION]
// client --kubeconfig FILE --namespace NAME --object NAME --contend lease|counter [--pace DURATION] …
//
// When all caches are filled, it creates the ConfigMap `--ready`, and when all informers have delivered the ConfigMap `probe`,
// the ConfigMap of that name with `-probe` appended.
//
// With `--contend`, several clients write one object instead: see contend.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// An object of the harness. The program answers when all informers have delivered it.
const probe = "probe"

// The label by which the caches are indexed.
const team = "team"

// The start of the program.
var start = time.Now()

// line is one line of the log.
type line struct {
	Informer string `json:"informer"`
	// `add`, `update`, `delete`; `cached` and `indexed` at the end; `request`; `timeout` if the marker did not come. With
	// `--contend`: `write`, with the version on which it is based.
	Event string `json:"event"`
	Key   string `json:"key,omitempty"`
	Rv    uint64 `json:"rv,omitempty"`
	// The version that an update or a write replaces.
	OldRv uint64 `json:"old_rv,omitempty"`
	Uid   string `json:"uid,omitempty"`
	// The informer missed the deletion and found it by a list.
	Tombstone bool `json:"tombstone,omitempty"`
	// The value of the label, for `indexed`.
	Team string `json:"team,omitempty"`
	// `GET /api/v1/…`, for `request`.
	Request string `json:"request,omitempty"`
	Status  int    `json:"status,omitempty"`
	// When a request began, in milliseconds since the start of the program, and how long its answer took.
	At   int64 `json:"at,omitempty"`
	Took int64 `json:"took,omitempty"`
	// The holder or the number, for `write`.
	Value string `json:"value,omitempty"`
	// The whole object, if the informer has it.
	Object any `json:"object,omitempty"`
}

// logger writes lines from all informers.
type logger struct {
	lock    sync.Mutex
	encoder *json.Encoder
}

func (l *logger) write(line line) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if err := l.encoder.Encode(line); err != nil {
		fatal(err)
	}
}

type options struct {
	kubeconfig, server, tokenFile, namespace, ready, marker, object, contend string
	watchList                                                                bool
	limit, pace                                                              time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the credentials")
	flag.StringVar(&o.server, "server", "", "`URL` of the apiserver instead of the one in the kubeconfig")
	flag.StringVar(&o.tokenFile, "token-file", "", "`file` with a token for that server")
	flag.StringVar(&o.namespace, "namespace", "", "the namespace to watch")
	flag.StringVar(&o.ready, "ready", "", "`name` of the ConfigMap to create when all caches are filled")
	flag.StringVar(&o.marker, "marker", "", "`name` of the last ConfigMap that the harness creates")
	flag.BoolVar(&o.watchList, "watch-list", false, "fill the caches by a watch instead of a list")
	flag.StringVar(&o.contend, "contend", "", "`kind` of object that several clients write: lease or counter")
	flag.StringVar(&o.object, "object", "", "`name` of that object")
	flag.DurationVar(&o.pace, "pace", time.Second, "the time for which a leader holds a lease")
	flag.DurationVar(&o.limit, "limit", time.Minute, "end after this time")
	version := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *version {
		fmt.Println("client-go", clientGo())
		return
	}
	// client-go reads it at the first use of the gate.
	if err := os.Setenv("KUBE_FEATURE_WatchListClient", strconv.FormatBool(o.watchList)); err != nil {
		fatal(err)
	}
	if err := run(o, os.Stdout); err != nil {
		fatal(err)
	}
}

// clientGo returns the version of client-go.
func clientGo() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range info.Deps {
		if module.Path == "k8s.io/client-go" {
			return module.Version
		}
	}
	return "unknown"
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "client:", err)
	os.Exit(1)
}

func run(o options, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags(o.server, o.kubeconfig)
	if err != nil {
		return err
	}
	config.BearerTokenFile = o.tokenFile
	// No limit of its own: the server decides.
	config.QPS = -1
	if o.contend != "" {
		return contend(o, config, out)
	}
	return inform(o, config, out)
}

// inform runs the informers until they have delivered the marker.
func inform(o options, config *rest.Config, out io.Writer) error {
	log := &logger{encoder: json.NewEncoder(out)}
	ctx, cancel := context.WithTimeout(context.Background(), o.limit)
	defer cancel()
	all, clients, err := informersOf(config, o.namespace, log)
	if err != nil {
		return err
	}
	seen := make(chan string, len(all))
	for name, informer := range all {
		if err := watch(name, informer, log, o.marker, seen); err != nil {
			return err
		}
		go informer.RunWithContext(ctx)
	}
	tell := func(suffix string) error {
		answer := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: o.ready + suffix}}
		_, err := clients.CoreV1().ConfigMaps(o.namespace).Create(ctx, answer, metav1.CreateOptions{})
		return err
	}
	for _, informer := range all {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			log.write(line{Event: "timeout"})
			return nil
		}
	}
	if err := tell(""); err != nil {
		return err
	}
	counts := map[string]int{}
	for counts[o.marker] < len(all) {
		select {
		case name := <-seen:
			counts[name]++
			if name == probe && counts[name] == len(all) {
				if err := tell("-" + probe); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			log.write(line{Event: "timeout"})
			return nil
		}
	}
	for name, informer := range all {
		dump(name, informer.GetIndexer(), log)
	}
	return nil
}

// informersOf returns an informer of each kind.
func informersOf(
	config *rest.Config, namespace string, log *logger,
) (map[string]cache.SharedIndexInformer, kubernetes.Interface, error) {
	logged := func(name string) *rest.Config {
		own := rest.CopyConfig(config)
		own.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return recorded{next, log, name} }
		return own
	}
	binary := logged("typed")
	binary.ContentType = runtime.ContentTypeProtobuf
	typed, err := kubernetes.NewForConfig(binary)
	if err != nil {
		return nil, nil, err
	}
	unstructured, err := dynamic.NewForConfig(logged("dynamic"))
	if err != nil {
		return nil, nil, err
	}
	partial, err := metadata.NewForConfig(logged("metadata"))
	if err != nil {
		return nil, nil, err
	}
	maps := corev1.SchemeGroupVersion.WithResource("configmaps")
	const resync = 2 * time.Second
	return map[string]cache.SharedIndexInformer{
		"typed": informers.NewSharedInformerFactoryWithOptions(typed, resync, informers.WithNamespace(namespace)).
			Core().V1().ConfigMaps().Informer(),
		"dynamic": dynamicinformer.NewFilteredDynamicSharedInformerFactory(unstructured, resync, namespace, nil).
			ForResource(maps).Informer(),
		"metadata": metadatainformer.NewFilteredSharedInformerFactory(partial, resync, namespace, nil).
			ForResource(maps).Informer(),
	}, typed, nil
}

// watch logs what the informer delivers. It sends the names of the probe and of the marker when they have come.
func watch(name string, informer cache.SharedIndexInformer, log *logger, marker string, seen chan<- string) error {
	byTeam := func(object any) ([]string, error) {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		return []string{accessor.GetLabels()[team]}, nil
	}
	if err := informer.AddIndexers(cache.Indexers{team: byTeam}); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			added := about(name, "add", object)
			log.write(added)
			if object := nameOf(object); object == marker || object == probe {
				seen <- object
			}
		},
		UpdateFunc: func(old, object any) {
			updated := about(name, "update", object)
			updated.OldRv = about(name, "", old).Rv
			log.write(updated)
		},
		DeleteFunc: func(object any) {
			unknown, isTombstone := object.(cache.DeletedFinalStateUnknown)
			if isTombstone {
				object = unknown.Obj
			}
			deleted := about(name, "delete", object)
			deleted.Tombstone = isTombstone
			log.write(deleted)
		},
	})
	return err
}

// dump logs the cache and its index.
func dump(name string, indexer cache.Indexer, log *logger) {
	for _, object := range indexer.List() {
		cached := about(name, "cached", object)
		cached.Object = nil
		log.write(cached)
	}
	teams := indexer.ListIndexFuncValues(team)
	sort.Strings(teams)
	for _, value := range teams {
		keys, err := indexer.IndexKeys(team, value)
		if err != nil {
			fatal(err)
		}
		sort.Strings(keys)
		for _, key := range keys {
			log.write(line{Informer: name, Event: "indexed", Key: key, Team: value})
		}
	}
}

func about(informer, event string, object any) line {
	accessor, err := meta.Accessor(object)
	if err != nil {
		fatal(err)
	}
	rv, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	if err != nil {
		fatal(fmt.Errorf("resource version of %s: %w", accessor.GetName(), err))
	}
	about := line{
		Informer: informer, Event: event, Key: accessor.GetNamespace() + "/" + accessor.GetName(), Rv: rv,
		Uid: string(accessor.GetUID()),
	}
	if _, partial := object.(*metav1.PartialObjectMetadata); !partial {
		about.Object = object
	}
	return about
}

func nameOf(object any) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		fatal(err)
	}
	return accessor.GetName()
}

// recorded logs the requests of one informer.
type recorded struct {
	next     http.RoundTripper
	log      *logger
	informer string
}

func (r recorded) RoundTrip(request *http.Request) (*http.Response, error) {
	begin := time.Now()
	answer, err := r.next.RoundTrip(request)
	status := 0
	if err == nil {
		status = answer.StatusCode
	}
	what := request.Method + " " + request.URL.RequestURI()
	r.log.write(line{
		Informer: r.informer, Event: "request", Request: what, Status: status,
		At: begin.Sub(start).Milliseconds(), Took: time.Since(begin).Milliseconds(),
	})
	return answer, err
}
