// A KMS v2 plugin for tests of encryption at rest.
//
// It wraps the input of an apiserver with AES-256-GCM under a key of a file, and names the key by its key ID. The file
// is read again for every request, so keys are added, made current and removed by rewriting it. The plugin keeps no
// state. It is not secure: the keys are stored next to it in plain text.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	kms "k8s.io/kms/apis/v2"
)

func main() {
	keys := flag.String("keys", "", "file with the keys, see keys.go")
	socket := flag.String("socket", "", "unix socket for the apiserver")
	listen := flag.String("listen", "", "address that answers /readyz over HTTPS")
	certificate := flag.String("cert-file", "", "certificate of that address")
	key := flag.String("key-file", "", "its key")
	version := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *version {
		if info, ok := debug.ReadBuildInfo(); ok {
			fmt.Println("kms-plugin", info.Main.Version)
		}
		return
	}
	if err := run(*keys, *socket, *listen, *certificate, *key); err != nil {
		fmt.Fprintln(os.Stderr, "kms-plugin:", err)
		os.Exit(1)
	}
}

// run serves until one of the two listeners fails.
func run(keys, socket, listen, certificate, key string) error {
	plugin := &plugin{keys: keys}
	if _, err := readRing(keys); err != nil {
		return err
	}
	// Linux allows 107 bytes and a NUL; for a longer path it only returns "invalid argument".
	if len(socket) > 107 {
		return fmt.Errorf("the path %s has %d bytes, but a socket's path has at most 107; see --cache", socket, len(socket))
	}
	// A killed plugin leaves its socket behind.
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	local, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	ready, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	kms.RegisterKeyManagementServiceServer(server, plugin)
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(local) }()
	go func() { failed <- serveReadiness(ready, plugin, certificate, key) }()
	fmt.Println("kms-plugin: serving", socket)
	return <-failed
}

// serveReadiness answers /readyz with 200 as long as the keys can be read. It starts after the socket is open.
func serveReadiness(on net.Listener, plugin *plugin, certificate, key string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(to http.ResponseWriter, _ *http.Request) {
		if _, err := readRing(plugin.keys); err != nil {
			http.Error(to, err.Error(), http.StatusInternalServerError)
		}
	})
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13},
	}
	return server.ServeTLS(on, certificate, key)
}
