package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// How far each processor's timer is ahead of the clock; setting all of them must take less time.
	ahead = time.Second
	// The minimum by which the clock is set ahead: more than ahead and the time since the guest was restored.
	leap = time.Minute
)

// rearm sets the clock so that the kernel programs the timer of every processor again.
//
// QEMU does not save the timers of loong64: a restored kernel waits for interrupts that never come, and does not
// program a timer that it believes to be programmed. When the clock is set on one processor, the kernel evaluates the
// timers of the other processors again if the change makes one of them expire. So each processor gets a timer, and the
// clock is set on each processor.
//
// The caller must be the goroutine that a system call has just woken, and nothing here may need another goroutine: Go
// schedules goroutines with the help of threads that sleep for microseconds, and such a sleep does not end before this
// function has succeeded.
func rearm(nanos int64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var everywhere unix.CPUSet
	if err := unix.SchedGetaffinity(0, &everywhere); err != nil {
		return fmt.Errorf("ask for this thread's processors: %w", err)
	}
	// A realtime policy, to run before processes that cannot be preempted as long as no timer fires.
	if err := schedule(unix.SCHED_FIFO, 1); err != nil {
		return err
	}
	return errors.Join(leaps(nanos), unix.SchedSetaffinity(0, &everywhere), schedule(unix.SCHED_NORMAL, 0))
}

// schedule sets the policy and priority of this thread.
func schedule(policy uintptr, priority int32) error {
	_, _, errno := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, policy, uintptr(unsafe.Pointer(&priority)))
	if errno != 0 {
		return fmt.Errorf("set this thread's policy: %w", errno)
	}
	return nil
}

func leaps(nanos int64) error {
	cpus := runtime.NumCPU()
	begin := time.Now().UnixNano()
	step := max((nanos-begin)/int64(cpus), int64(leap))
	for setter := range cpus {
		for cpu := range cpus {
			timer, err := expireAfterLeap(cpu)
			if err != nil {
				return fmt.Errorf("a timer on processor %d: %w", cpu, err)
			}
			defer unix.Close(timer)
		}
		if err := pin(setter); err != nil {
			return err
		}
		if err := setTime(begin + int64(setter+1)*step); err != nil {
			return err
		}
	}
	return nil
}

func setTime(nanos int64) error {
	now := unix.NsecToTimeval(nanos)
	if err := unix.Settimeofday(&now); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}

// expireAfterLeap sets a timer of this processor. It pins the thread to the processor.
func expireAfterLeap(cpu int) (int, error) {
	if err := pin(cpu); err != nil {
		return 0, err
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(time.Now().Add(ahead).UnixNano())}
	return timer, unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME, &at, nil)
}

func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}
