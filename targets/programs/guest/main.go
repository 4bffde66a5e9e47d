// The first process of a system VM, or of a container.
//
// In a VM it mounts file systems, loads modules, brings up the network, and then executes the harness's requests from a
// virtio-serial port: start and signal components, set the clock, read files. The harness decides what runs, with which
// flags and when. The protocol is in control.go; container.go has the differences of a container.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if orders := os.Getenv(ordersVariable); orders != "" {
		fmt.Fprintln(os.Stderr, "init:", inContainer(strings.Fields(orders)))
		os.Exit(1)
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this program is the first process of a virtual machine and does nothing elsewhere; "+
			"in a container it reads its configuration from the variable "+ordersVariable)
		os.Exit(2)
	}
	if err := boot(); err != nil {
		// The harness reads the console: the cause must be printed before the kernel panics because init exited.
		fmt.Printf("archproof: fatal: %v\n", err)
		time.Sleep(100 * time.Millisecond)
		unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
}

// boot runs until the machine is switched off.
func boot() error {
	if err := mount(); err != nil {
		return err
	}
	// Without a host name an apiserver fails to create its own lease, and retries without end: `(none)` is not a valid
	// value of its label kubernetes.io/hostname.
	if err := unix.Sethostname([]byte("guest")); err != nil {
		return err
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	if err := enterDisk(); err != nil {
		return err
	}
	if err := network(); err != nil {
		return err
	}
	control, err := openPort("archproof.control")
	if err != nil {
		return err
	}
	logs, err := openPort("archproof.logs")
	if err != nil {
		return err
	}
	fmt.Println("archproof: up")
	// /sbin exists only on a disk: kube-proxy searches nft there.
	components := newComponents(newSender(logs).send, []string{"PATH=/sbin:/bin", "HOME=/root"})
	components.reap()
	go shell(components)
	return serve(control, newSender(control), components)
}
