package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// components are the supervised processes, by name.
type components struct {
	// Receives the output of the components, and how they ended.
	tell func(message, ...byte)
	// The environment of all components, before their own variables.
	environment []string

	mutex sync.Mutex
	// The entry of a process that has ended stays until the next start.
	byName map[string]*process
	// The patience of components that are started from now on.
	patience patience
	// The number of programs that were measured, for their names.
	measured atomic.Int64
}

// patience is how long a component runs and how late its timers are; the zero value means the kernel's defaults.
type patience struct {
	// How long it runs before the scheduler may run another process.
	slice time.Duration
	// How late its timers may fire.
	late time.Duration
}

type process struct {
	pid    int
	status string // how it ended; empty while it runs
	code   byte   // the exit code, as a shell reports it
	ended  chan struct{}
	// Closed when all of its output has been sent, or at once if its output is not sent.
	sent chan struct{}
}

// outputLimit bounds the wait for the output of a process that has ended: a process that it started may have its pipe.
const outputLimit = 5 * time.Second

func newComponents(tell func(message, ...byte), environment []string) *components {
	return &components{tell: tell, environment: environment, byName: map[string]*process{}}
}

func (c *components) setPatience(patience patience) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.patience = patience
}

// start runs a program whose output goes to the log port under name.
func (c *components) start(name, program string, args []string, env map[string]string) (int, error) {
	p, output, err := c.spawn(name, program, args, env)
	if err != nil {
		return 0, err
	}
	go func() {
		c.forward(name, output)
		close(p.sent)
	}()
	return p.pid, nil
}

// spawn starts a program and returns its output.
func (c *components) spawn(name, program string, args []string, env map[string]string) (*process, *os.File, error) {
	program, err := exec.LookPath(program)
	if err != nil {
		return nil, nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer writer.Close()
	environment := slices.Clone(c.environment)
	for key, value := range env {
		environment = append(environment, key+"="+value)
	}
	p, err := c.register(name, func() (int, error) {
		return withPatience(c.patience, func() (int, error) {
			return syscall.ForkExec(program, append([]string{program}, args...), &syscall.ProcAttr{
				Dir:   "/",
				Env:   environment,
				Files: []uintptr{devNull(), writer.Fd(), writer.Fd()},
				Sys:   &syscall.SysProcAttr{Setpgid: true},
			})
		})
	})
	if err != nil {
		reader.Close()
		return nil, nil, fmt.Errorf("run %s: %w", program, err)
	}
	return p, reader, nil
}

// withPatience forks a process with this timer slack and time slice; its children inherit both.
//
// The monitor thread of Go requests sleeps of 20 µs in a process that works now and then. On an emulated processor each
// of these wake-ups costs more than the sleep: a third of the time of an idle control plane. At each switch to another
// process the emulated processor also forgets all translated addresses, so a process that wakes up does not preempt the
// running one (SCHED_BATCH).
func withPatience(patience patience, fork func() (int, error)) (int, error) {
	if patience.late == 0 && patience.slice == 0 {
		return fork()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(patience.late.Nanoseconds()), 0, 0, 0); err != nil {
		return 0, fmt.Errorf("set the timer slack: %w", err)
	}
	// 0 restores the thread's former value.
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
	// Kernels before 6.12 have no slices per process, and ignore the value.
	batch := unix.SchedAttr{Policy: unix.SCHED_BATCH, Runtime: uint64(patience.slice.Nanoseconds())}
	if err := unix.SchedSetAttr(0, &batch, 0); err != nil {
		return 0, fmt.Errorf("set the policy: %w", err)
	}
	defer unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_NORMAL}, 0)
	return fork()
}

// register adds a new process to the table.
//
// It does not use exec.Cmd, which waits for its own children only: this process has to wait for all children. The
// reaper waits for the lock, so it finds a process that ends at once in the table.
func (c *components) register(name string, fork func() (int, error)) (*process, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if old := c.byName[name]; old != nil && old.status == "" {
		return nil, fmt.Errorf("%s is running already, as process %d", name, old.pid)
	}
	pid, err := fork()
	if err != nil {
		return nil, err
	}
	p := &process{pid: pid, ended: make(chan struct{}), sent: make(chan struct{})}
	c.byName[name] = p
	return p, nil
}

// exitCode returns the exit code of a process that has ended.
func (c *components) exitCode(name string) byte {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.byName[name].code
}

// forget removes a process that has ended from the table.
func (c *components) forget(name string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.byName, name)
}

// signal sends a signal to the whole process group. After SIGSTOP it returns when no thread of the group runs any more:
// the group stops only when one of its threads runs again and takes the signal.
func (c *components) signal(name string, number int) error {
	c.mutex.Lock()
	p := c.byName[name]
	if p == nil {
		c.mutex.Unlock()
		return fmt.Errorf("%s was never started", name)
	}
	if p.status != "" {
		c.mutex.Unlock()
		return nil
	}
	err := unix.Kill(-p.pid, unix.Signal(number))
	c.mutex.Unlock()
	if err == nil && unix.Signal(number) == unix.SIGSTOP {
		for end := time.Now().Add(stopLimit); !groupIsStopped(p.pid) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	return err
}

// stopLimit bounds the wait for threads that a disk keeps from stopping.
const stopLimit = 10 * time.Second

// groupIsStopped reports whether every thread of every process of the group is stopped or has ended.
func groupIsStopped(group int) bool {
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range processes {
		if _, of := stateAndGroup(stat); of != group {
			continue
		}
		threads, _ := filepath.Glob(filepath.Join(filepath.Dir(stat), "task", "*", "stat"))
		for _, thread := range threads {
			if state, _ := stateAndGroup(thread); !strings.Contains("TtZX", state) {
				return false
			}
		}
	}
	return true
}

// stateAndGroup reads state and process group from a stat file of /proc; both are empty if the process has ended.
func stateAndGroup(stat string) (state string, group int) {
	text, err := os.ReadFile(stat)
	if err != nil {
		return "", 0
	}
	// The command name, in parentheses, may contain spaces and parentheses.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 3 {
		return "", 0
	}
	group, _ = strconv.Atoi(fields[2])
	return fields[0], group
}

// running returns the names of the components that have not ended.
func (c *components) running() []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var names []string
	for name, p := range c.byName {
		if p.status == "" {
			names = append(names, name)
		}
	}
	return names
}

// state returns how a component ended; the status is empty while it runs.
func (c *components) state(name string) (*process, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	p := c.byName[name]
	if p == nil {
		return nil, fmt.Errorf("%s was never started", name)
	}
	return &process{pid: p.pid, status: p.status, ended: p.ended}, nil
}

// reap waits for all children, without end and in the background: orphans become children of the first process, too. It
// must be called before the first start. Without a registration Go ignores the signal, and a child that ended before the
// registration would run for ever.
func (c *components) reap() {
	children := make(chan os.Signal, 1)
	notifyChildren(children)
	go func() {
		for {
			// One signal may stand for several children.
			for c.reapOne() {
			}
			<-children
		}
	}()
}

// reapOne reaps a child that has ended; it returns false if there is none.
func (c *components) reapOne() bool {
	// Take the lock, so that a starting process is in the table before it is reaped.
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
	if err == unix.EINTR {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	for name, p := range c.byName {
		if p.pid == pid && p.status == "" {
			p.status, p.code = describe(status), code(status)
			close(p.ended)
			go c.tellEnd(p, message{"component": name, "pid": pid, "ended": p.status})
		}
	}
	return true
}

// tellEnd reports the end of a process after its output, which says why it ended: the harness reads the log when it gets
// that report.
func (c *components) tellEnd(p *process, end message) {
	select {
	case <-p.sent:
	case <-time.After(outputLimit):
	}
	c.tell(end)
}

// forward sends a component's output line by line; a line longer than the buffer is sent in pieces.
func (c *components) forward(name string, reader *os.File) {
	defer reader.Close()
	buffer := make([]byte, 0, 64<<10)
	for {
		n, err := reader.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		cut := bytes.LastIndexByte(buffer, '\n') + 1
		if err != nil || (cut == 0 && len(buffer) == cap(buffer)) {
			cut = len(buffer)
		}
		if cut > 0 {
			c.tell(message{"component": name, "bytes": cut}, buffer[:cut]...)
			buffer = buffer[:copy(buffer, buffer[cut:])]
		}
		if err != nil {
			return
		}
	}
}

// describe uses the words of Rust's ExitStatus: the harness compares them with those of programs on its own machine.
func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("signal: %d (%s)", status.Signal(), unix.SignalName(status.Signal()))
	}
	return fmt.Sprintf("exit status: %d", status.ExitStatus())
}

// code returns the exit code, as a shell reports it.
func code(status unix.WaitStatus) byte {
	if status.Signaled() {
		return byte(128 + int(status.Signal()))
	}
	return byte(status.ExitStatus())
}

// devNull is the standard input of every component.
var devNull = sync.OnceValue(func() uintptr {
	fd, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ^uintptr(0)
	}
	return uintptr(fd)
})
