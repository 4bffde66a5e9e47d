package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// In a container nothing is mounted here, and the harness connects through a socket, after the start and before the end
// of the container. The output of components goes into files, and also to this process's own output, where users look
// for it, until a request makes that quiet.
//
// This process may replace a program: it is found under the program's name earlier on the PATH, because kubeadm expects
// its own command. Then it runs that program from the start, with the same arguments. If that program ends while no
// harness is connected, the container ends too, as it would without this process; then the manager of the container,
// such as kubelet, restarts it.
//
// A variable configures it, with words separated by spaces: the socket, the folder of the logs, and if it replaces a
// program, the component's name and the command of the program.
const ordersVariable = "ARCHPROOF_AGENT"

// container sends events to the harness while one is connected.
type container struct {
	// The folder of the log files.
	logs string
	// The component that runs from the start; empty if there is none.
	first string

	mutex   sync.Mutex
	harness *sender
	files   map[string]*os.File
}

// inContainer serves on a socket until the container ends.
func inContainer(orders []string) error {
	if len(orders) < 2 {
		return fmt.Errorf("%s does not contain a socket and a folder", ordersVariable)
	}
	socket := orders[0]
	c := &container{logs: orders[1], files: map[string]*os.File{}}
	if err := standAside(); err != nil {
		return err
	}
	all := newComponents(c.tell, os.Environ())
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, unix.SIGTERM, unix.SIGINT)
	go func() {
		<-terminated
		all.end()
		os.Exit(0)
	}()
	all.reap()
	if len(orders) > 2 {
		c.first = orders[2]
		command := slices.Concat(orders[3:], []string{filepath.Base(os.Args[0])}, os.Args[1:])
		if _, err := all.start(c.first, command[0], command[1:], nil); err != nil {
			return err
		}
	}
	// The socket of an earlier start of the container.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	// The permissions of the socket's folder decide who may connect.
	if err := os.Chmod(socket, 0o666); err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		harness := newSender(connection)
		c.connect(harness)
		fmt.Println("archproof: the harness has disconnected:", serve(connection, harness, all))
		connection.Close()
		c.connect(nil)
		if c.first != "" {
			if p, err := all.state(c.first); err != nil || p.status != "" {
				return fmt.Errorf("%s does not run, and no harness is connected that would start it", c.first)
			}
		}
	}
}

// standAside restores the environment to what it would be without this process.
func standAside() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	folders := filepath.SplitList(os.Getenv("PATH"))
	folders = slices.DeleteFunc(folders, func(folder string) bool { return folder == filepath.Dir(self) })
	if err := os.Setenv("PATH", strings.Join(folders, string(filepath.ListSeparator))); err != nil {
		return err
	}
	return os.Unsetenv(ordersVariable)
}

func (c *container) connect(harness *sender) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.harness = harness
}

// tell logs the output of a component, and passes on how it ended.
func (c *container) tell(m message, bytes ...byte) {
	name, _ := m["component"].(string)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(bytes) > 0 {
		os.Stdout.Write(bytes)
		if file := c.file(name); file != nil {
			file.Write(bytes)
		}
		return
	}
	fmt.Printf("archproof: %s (%v) has ended: %v\n", name, m["pid"], m["ended"])
	switch {
	case c.harness != nil:
		c.harness.send(m)
	case name == c.first:
		os.Exit(1)
	}
}

// file returns the log file of a component; nil if it cannot be written.
func (c *container) file(name string) *os.File {
	if file, known := c.files[name]; known {
		return file
	}
	path := filepath.Join(c.logs, strings.ReplaceAll(name, "/", ".")+".log")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Println("archproof: no log:", err)
	}
	c.files[name] = file
	return file
}

// end terminates all components, even suspended ones, and returns when they have ended and their output has been sent.
func (c *components) end() {
	for _, name := range c.running() {
		c.signal(name, int(unix.SIGTERM))
		c.signal(name, int(unix.SIGCONT))
	}
	for len(c.running()) > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	c.mutex.Lock()
	all := slices.Collect(maps.Values(c.byName))
	c.mutex.Unlock()
	limit := time.After(outputLimit)
	for _, p := range all {
		select {
		case <-p.sent:
		case <-limit:
			return
		}
	}
}
