package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

// The number of clients that contend for one object.
const contenders = 4

// The increments of each client.
const increments = 15

// Elections after which the candidates end.
const elections = 4

// contend lets several clients write the same object: candidates of an election, or counters. It logs every write.
func contend(o options, config *rest.Config, out io.Writer) error {
	log := &logger{encoder: json.NewEncoder(out)}
	ctx, cancel := context.WithTimeout(context.Background(), o.limit)
	defer cancel()
	meeting := &meeting{longest: o.pace}
	work := increment
	if o.contend == "lease" {
		work = func(ctx context.Context, client kubernetes.Interface, o options, identity string) error {
			return campaign(ctx, cancel, client, o, identity)
		}
	} else if o.contend != "counter" {
		return fmt.Errorf("--contend must be lease or counter, not %q", o.contend)
	}
	failures := make(chan error, contenders)
	for number := range contenders {
		identity := fmt.Sprintf("client-%d", number)
		own := rest.CopyConfig(config)
		// The log reads the bodies.
		own.ContentType = "application/json"
		own.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return &writer{next: next, log: log, meeting: meeting, identity: identity}
		}
		client, err := kubernetes.NewForConfig(own)
		if err != nil {
			return err
		}
		go func() { failures <- work(ctx, client, o, identity) }()
	}
	var all []error
	for range contenders {
		all = append(all, <-failures)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		log.write(line{Event: "timeout"})
		return nil
	}
	return errors.Join(all...)
}

// increment adds to the number in a ConfigMap, again and again.
func increment(ctx context.Context, client kubernetes.Interface, o options, _ string) error {
	backoff := wait.Backoff{Steps: 1000, Duration: 2 * time.Millisecond, Factor: 1, Jitter: 1}
	maps := client.CoreV1().ConfigMaps(o.namespace)
	for range increments {
		err := retry.OnError(backoff, mayTryAgain, func() error {
			counter, err := maps.Get(ctx, o.object, metav1.GetOptions{})
			if err != nil {
				return err
			}
			count, err := strconv.Atoi(counter.Data["count"])
			if err != nil {
				return err
			}
			counter.Data["count"] = strconv.Itoa(count + 1)
			_, err = maps.Update(ctx, counter, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mayTryAgain reports whether the next attempt may succeed. After a time-out the server may have made the change: the log
// has that write without an answer.
func mayTryAgain(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err)
}

// campaign takes part in elections. A leader renews its lease a few times and leaves without giving it up.
func campaign(
	ctx context.Context, end context.CancelFunc, client kubernetes.Interface, o options, identity string,
) error {
	for ctx.Err() == nil {
		term, leave := context.WithCancel(ctx)
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: o.namespace, Name: o.object},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:          lock,
			LeaseDuration: 2 * o.pace,
			RenewDeadline: 3 * o.pace / 2,
			RetryPeriod:   o.pace / 5,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					// Not by the lock, which the elector is using.
					held, err := client.CoordinationV1().Leases(o.namespace).Get(ctx, o.object, metav1.GetOptions{})
					if err == nil && held.Spec.LeaseTransitions != nil && *held.Spec.LeaseTransitions >= elections {
						end()
					}
					time.Sleep(o.pace)
					leave()
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			leave()
			return err
		}
		elector.Run(term)
		leave()
		// The former leader does not stand for the next election.
		select {
		case <-ctx.Done():
		case <-time.After(3 * o.pace):
		}
	}
	return nil
}

// writer logs the writes of one client. Writes that would replace another client's come in pairs.
type writer struct {
	next     http.RoundTripper
	log      *logger
	meeting  *meeting
	identity string
	lock     sync.Mutex
	// The holder of the lease, as this client has read it.
	holder string
}

// written is the part of a Lease or ConfigMap that the log shows.
type written struct {
	Metadata struct{ Name, Namespace, ResourceVersion string }
	Spec     struct{ HolderIdentity string }
	Data     struct{ Count string }
}

func (w *writer) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPut && request.Method != http.MethodPost {
		answer, err := w.next.RoundTrip(request)
		if err == nil {
			body, err := w.read(answer)
			if err != nil {
				return nil, err
			}
			w.lock.Lock()
			w.holder = body.Spec.HolderIdentity
			w.lock.Unlock()
		}
		return answer, err
	}
	content, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	request.Body = io.NopCloser(bytes.NewReader(content))
	var sent written
	if err := json.Unmarshal(content, &sent); err != nil {
		return nil, err
	}
	w.lock.Lock()
	takesOver := w.holder != w.identity
	w.lock.Unlock()
	if takesOver {
		w.meeting.join()
	}
	answer, err := w.next.RoundTrip(request)
	entry := line{
		Informer: w.identity, Event: "write", Key: sent.Metadata.Namespace + "/" + sent.Metadata.Name,
		OldRv: number(sent.Metadata.ResourceVersion), Value: sent.Spec.HolderIdentity + sent.Data.Count,
	}
	if err == nil {
		received, err := w.read(answer)
		if err != nil {
			// The server may have made the change.
			w.log.write(entry)
			return nil, err
		}
		entry.Status = answer.StatusCode
		if answer.StatusCode < 300 {
			entry.Rv = number(received.Metadata.ResourceVersion)
		}
		w.lock.Lock()
		if answer.StatusCode < 300 && sent.Spec.HolderIdentity != "" {
			w.holder = sent.Spec.HolderIdentity
		}
		w.lock.Unlock()
	}
	w.log.write(entry)
	return answer, err
}

// read parses the body of an answer and puts it back.
func (w *writer) read(answer *http.Response) (written, error) {
	content, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(content))
	var received written
	if err == nil && strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json") {
		err = json.Unmarshal(content, &received)
	}
	return received, err
}

func number(version string) uint64 {
	value, _ := strconv.ParseUint(version, 10, 64)
	return value
}

// meeting holds a write until a second one comes, so that two clients write at the same moment.
type meeting struct {
	lock    sync.Mutex
	waiting chan struct{}
	longest time.Duration
}

func (m *meeting) join() {
	m.lock.Lock()
	if waiting := m.waiting; waiting != nil {
		m.waiting = nil
		m.lock.Unlock()
		close(waiting)
		return
	}
	other := make(chan struct{})
	m.waiting = other
	m.lock.Unlock()
	select {
	case <-other:
	case <-time.After(m.longest):
		m.lock.Lock()
		if m.waiting == other {
			m.waiting = nil
		}
		m.lock.Unlock()
	}
}
