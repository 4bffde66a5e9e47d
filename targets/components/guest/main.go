// The first process of a system VM, or of a container.
//
// In a VM it mounts, loads modules, brings up the network, and then does what the harness asks through a virtio-serial
// port: start and signal components, set the clock, read files. It decides nothing by itself; what runs, with which flags
// and when, is the harness's business. The protocol is in control.go; what is different in a container in container.go.
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
		fmt.Fprintln(os.Stderr, "init: this program is the first process of a virtual machine and does nothing elsewhere\n"+
			"in a container it finds its orders in the variable "+ordersVariable)
		os.Exit(2)
	}
	if err := boot(); err != nil {
		// The harness reads the console: the cause must stand there before the kernel panics over its lost init.
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
	// Without a name an apiserver tries for ever to make its own lease: `(none)` is no value for its label
	// kubernetes.io/hostname.
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
	// /sbin is there on a disk only: kube-proxy looks for nft.
	components := newComponents(newSender(logs).send, []string{"PATH=/sbin:/bin", "HOME=/root"})
	go components.reap()
	go shell(components)
	return serve(control, newSender(control), components)
}
