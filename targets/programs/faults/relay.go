package main

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Directions.
const (
	up   = 0 // from the apiserver
	down = 1 // from the store
)

// relay has the mode and all connections.
type relay struct {
	store string

	lock sync.Mutex
	mode mode
	// changed is closed when the mode is replaced.
	changed chan struct{}
	open    map[*connection]struct{}
	count   *counters
}

// counters counts what happened during one mode.
type counters struct {
	accepted, refused, reset atomic.Int64
	// By direction.
	bytes, held, delayed [2]atomic.Int64
}

func newRelay(store string) *relay {
	return &relay{store: store, changed: make(chan struct{}), open: map[*connection]struct{}{}, count: &counters{}}
}

func (r *relay) read(words []string) error {
	next, err := parse(words)
	if err == nil {
		r.set(next)
	}
	return err
}

// set changes the mode and prints the counters of the last one.
func (r *relay) set(next mode) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if next == r.mode {
		return
	}
	last, count := r.mode, r.count
	r.mode, r.count = next, &counters{}
	close(r.changed)
	r.changed = make(chan struct{})
	if next.name == "cut" {
		for c := range r.open {
			c.reset()
			r.count.reset.Add(1)
		}
	}
	fmt.Printf("relay: %s %s after %s", next.token, next.name, last.name)
	for _, number := range []struct {
		name  string
		value *atomic.Int64
	}{
		{"accepted", &count.accepted}, {"refused", &count.refused}, {"reset", &count.reset},
		{"bytes-up", &count.bytes[up]}, {"bytes-down", &count.bytes[down]},
		{"held-up", &count.held[up]}, {"held-down", &count.held[down]},
		{"delayed-up", &count.delayed[up]}, {"delayed-down", &count.delayed[down]},
	} {
		fmt.Printf(" %s=%d", number.name, number.value.Load())
	}
	fmt.Println()
}

// now returns the mode, its counters, and a channel that is closed when the mode changes.
func (r *relay) now() (mode, *counters, <-chan struct{}) {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.mode, r.count, r.changed
}

func (r *relay) serve(listener net.Listener) error {
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go r.connect(client.(*net.TCPConn))
	}
}

// connect serves a connection until its end.
func (r *relay) connect(client *net.TCPConn) {
	store, err := net.Dial("tcp", r.store)
	if err != nil {
		refuse(client)
		return
	}
	c := &connection{ends: [2]*net.TCPConn{client, store.(*net.TCPConn)}, done: make(chan struct{})}
	if !r.enter(c) {
		return
	}
	var both sync.WaitGroup
	for direction := range c.ends {
		both.Go(func() { r.pass(c, direction) })
	}
	both.Wait()
	c.close()
	r.leave(c)
}

// enter registers a connection, unless the mode allows none.
func (r *relay) enter(c *connection) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.mode.name == "cut" {
		r.count.refused.Add(1)
		c.reset()
		return false
	}
	r.count.accepted.Add(1)
	r.open[c] = struct{}{}
	return true
}

func (r *relay) leave(c *connection) {
	r.lock.Lock()
	defer r.lock.Unlock()
	delete(r.open, c)
}

// connection is a connection of the apiserver together with the relay's connection to the store.
type connection struct {
	// The apiserver's and the store's end: bytes that come from ends[up] go up.
	ends [2]*net.TCPConn
	once sync.Once
	done chan struct{}
}

func (c *connection) close() {
	c.once.Do(func() {
		close(c.done)
		c.ends[up].Close()
		c.ends[down].Close()
	})
}

// reset ends both sides as a broken network does, without an orderly shutdown.
func (c *connection) reset() {
	c.ends[up].SetLinger(0)
	c.ends[down].SetLinger(0)
	c.close()
}

func refuse(client *net.TCPConn) {
	client.SetLinger(0)
	client.Close()
}

// piece is the result of one read.
type piece struct {
	bytes []byte
	at    time.Time
}

// The maximum number of waiting pieces; beyond it the relay stops reading, and TCP makes the sender wait.
const waiting = 256

// pass moves bytes of one direction until the connection ends.
func (r *relay) pass(c *connection, direction int) {
	from, to := c.ends[direction], c.ends[1-direction]
	pieces := make(chan piece, waiting)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 16*1024)
			n, err := from.Read(buffer)
			if n > 0 {
				select {
				case pieces <- piece{buffer[:n], time.Now()}:
				case <-c.done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		if !r.await(c, direction, p.at) {
			return
		}
		if _, err := to.Write(p.bytes); err != nil {
			c.close()
			return
		}
		_, count, _ := r.now()
		count.bytes[direction].Add(int64(len(p.bytes)))
	}
	// The end of the stream is delayed or held like its bytes.
	if r.await(c, direction, time.Now()) {
		to.CloseWrite()
	}
}

// await returns true when bytes read at that time may pass; false if the connection has ended.
func (r *relay) await(c *connection, direction int, at time.Time) bool {
	for {
		mode, count, changed := r.now()
		wait := time.Until(at.Add(mode.delay))
		var due <-chan time.Time
		switch {
		case mode.holds(direction):
			count.held[direction].Add(1)
		case wait > 0:
			count.delayed[direction].Add(1)
			due = time.After(wait)
		default:
			return true
		}
		select {
		case <-due:
			return true
		case <-changed:
		case <-c.done:
			return false
		}
	}
}
