// Faults between a store and an apiserver, between a store and its disk, and between an apiserver and its webhooks, for
// tests.
//
// `faults --listen=… --to=… --control=…` is a TCP relay between an apiserver and its store. It passes bytes unchanged:
// TLS is end to end, so the relay needs no keys, and it is ready when the store is.
//
// `faults slow-disk CONTROL PROGRAM ARGUMENT…` executes that program with a disk that can be made slow.
//
// `faults --webhook --listen=… --control=… --cert-file=… --key-file=…` is a webhook of an apiserver that can be made
// slow, and made to fail.
//
// None of them disturbs on its own: a control file selects the fault, and is read again whenever it is replaced. See
// relay.go, disk.go and webhook.go.
//
// `faults replace-text FILE TEXT OTHER` and `faults set-aside FOLDER` change the files of a store that does not run, at
// once. See damage.go.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
)

func init() {
	// The kernel kills this process when its parent dies (PR_SET_PDEATHSIG). That is a property of its first thread: if
	// another thread executed the program, the program would not be killed.
	runtime.LockOSThread()
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) > 2 && args[0] == "slow-disk":
		return slowDisk(args[1], args[2:])
	case len(args) == 2 && args[0] == "supervise":
		return supervise(args[1])
	case len(args) == 4 && args[0] == "replace-text":
		return replaceText(args[1], args[2], args[3])
	case len(args) == 2 && args[0] == "set-aside":
		return setAside(args[1])
	}
	listen := flag.String("listen", "", "address for the apiserver")
	to := flag.String("to", "", "URL of the store")
	control := flag.String("control", "", "file that selects the fault, see relay.go and webhook.go")
	hook := flag.Bool("webhook", false, "answer reviews instead of relaying connections")
	certificate := flag.String("cert-file", "", "the webhook's certificate")
	key := flag.String("key-file", "", "its key")
	version := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *version {
		if info, ok := debug.ReadBuildInfo(); ok {
			fmt.Println("faults", info.Main.Version)
		}
		return nil
	}
	if *hook {
		return serveReviews(*listen, *control, *certificate, *key)
	}
	return serve(*listen, *to, *control)
}

// serve relays until it fails.
func serve(listen, to, control string) error {
	store, err := url.Parse(to)
	if err != nil {
		return err
	}
	relay := newRelay(store.Host)
	failed := make(chan error, 1)
	if err := follow(control, relay.read, failed); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	go func() { failed <- relay.serve(listener) }()
	return <-failed
}
