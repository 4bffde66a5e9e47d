// pause holds the namespaces of a Pod until it gets a signal to exit. It is the first process of the sandbox; if
// containers share the sandbox's process namespace, orphans become its children, and it reaps them.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for {
		// A child may have exited before this process registered for signals, and one signal may stand for several.
		reap()
		if next := <-signals; next != syscall.SIGCHLD {
			os.Stdout.WriteString("Shutting down, got signal: " + next.String() + "\n")
			return
		}
	}
}

func reap() {
	for {
		var status syscall.WaitStatus
		child, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err != syscall.EINTR && child <= 0 {
			return
		}
	}
}
